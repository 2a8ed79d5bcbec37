"""The text of source files: only ``.py`` files that the profile names, and only where it is allowed. Allowed
are files below the folder that the user gave, links resolved; without a folder, the files of opscope's own
recording whose recorded hash still matches. A profile is untrusted: the names in it may be anything."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .viewed import Viewed

#: The most bytes of a file that is shown.
_LARGEST: Final = 4 << 20
_LONGEST: Final = 4_096
#: How deep lists of profiles within profiles are read.
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True)
class Found:
    """A file that may be shown: where it is, its text with lines ended by ``\\n``, and a warning about
    the text."""

    path: Path
    text: str
    note: str | None


class NotShown(Exception):
    """The text of the file is not shown; the message says why."""


def found(viewed: Viewed, file: str) -> Found:
    """Return the file that the profile names ``file``. Raises NotShown."""
    if "\0" in file or len(file) > _LONGEST:
        raise NotShown("this is not the name of a file")
    if file.startswith(("In [", "stdin")):
        raise NotShown("a notebook's cell is no file")
    if not file.endswith(".py"):
        raise NotShown("only .py files are shown")
    if viewed.source_root is not None:
        return _below(viewed, viewed.source_root, file)
    return _record(viewed, file)


def _record(viewed: Viewed, file: str) -> Found:
    """Return the file if it is unchanged since the recording ended."""
    source = _hashes(viewed).get(file)
    if source is None:
        raise NotShown(
            "its text is shown if it lies in a folder that is allowed: --source-root DIR"
        )
    path, digest = source
    if not os.path.isabs(path):
        raise NotShown("the recording does not say where it is")
    real_path = Path(os.path.realpath(path))
    data = _read(real_path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise NotShown("the file has changed since it was recorded, so its lines may be others")
    return Found(real_path, _text(data), None)


def _below(viewed: Viewed, root: Path, file: str) -> Found:
    """Return the file below ``root``: by its full name, else by the longest end of the name for which a
    file exists."""
    parts = [part for part in file.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or (parts and ":" in parts[0]):
        parts = parts[-1:]
    real_root = root.resolve()
    for first in range(len(parts)):
        path = real_root.joinpath(*parts[first:])
        try:
            resolved = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # the file is missing, or links form a circle
            continue
        if not resolved.is_relative_to(real_root):
            raise NotShown(f"it leads out of {real_root}")
        if resolved.suffix != ".py":
            raise NotShown("it leads to a file that is no .py file")
        data = _read(resolved)
        note = None
        source = _hashes(viewed).get(file)
        if source is not None and hashlib.sha256(data).hexdigest() != source[1]:
            note = "the file has changed since it was recorded: its lines may be others"
        elif source is None and first:
            note = f"taken for {'/'.join(parts[first:])} below the folder: the profile names {file}"
        return Found(resolved, _text(data), note)
    raise NotShown(f"there is no such file below {real_root}")


def _hashes(viewed: Viewed) -> dict[str, tuple[str, str]]:
    """Return the path and the hash of each file that a recording stored, by its name in the profile.

    Several profiles have their own lists; a name that means different files in them is left out.
    """
    source_by_file: dict[str, tuple[str, str] | None] = {}
    for entry in _store(viewed.profile.trace.origin):
        if isinstance(entry, dict) and {"file", "path", "sha256"} <= entry.keys():
            source = (str(entry["path"]), str(entry["sha256"]))
            source_by_file[str(entry["file"])] = (
                source if source_by_file.get(str(entry["file"]), source) == source else None
            )
    return {name: place for name, place in source_by_file.items() if place is not None}


def _store(origin: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the source files that an origin, or its parts, list; untrusted ones may be anything."""
    if not isinstance(origin, dict) or depth > _DEEPEST:
        return
    files, parts = origin.get("source_files"), origin.get("parts")
    yield from files if isinstance(files, list) else ()
    for part in parts if isinstance(parts, list) else ():
        yield from _store(part, depth + 1)


def _read(path: Path) -> bytes:
    """Return the file's content. Raises NotShown, also for a pipe or device, which is not waited for."""
    try:
        if path.suffix != ".py":
            raise NotShown("a link leads to a file that is no .py file")
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        number = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise NotShown(f"it cannot be read: {why}") from None
    try:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            raise NotShown("it is no regular file")
        if about.st_size > _LARGEST:
            raise NotShown(f"it is larger than {_LARGEST >> 20} MB")
        with os.fdopen(os.dup(number), "rb") as opened:
            return opened.read(_LARGEST)
    except OSError as error:
        raise NotShown(f"it cannot be read: {error.strerror or error}") from None
    finally:
        os.close(number)


def _text(data: bytes) -> str:
    text = data.decode("utf-8-sig", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")
