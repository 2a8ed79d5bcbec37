"""One file format each, into the trace tables; ``open`` tells them apart by content."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import BadInput, NoneReadable

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

__all__ = ["BadInput", "NoneReadable", "format_of", "open"]

_SQLITE: Final = b"SQLite format 3\0"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: Readers of SQLite, asked in turn: each has ``recognise(path)``.
_DATABASES: Final = ("nsys", "nvprof", "dlprof")
#: Bytes in which a JSON trace shows itself: whitespace, then an object or an array.
_HEAD: Final = 4096


def open(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, strict: bool = True
) -> Trace:
    """The trace in a file or folder of any format; several are one job's, joined.

    A folder is a profile of ours, a recording of which none was made, an export of Nsight Systems, or
    the files of many ranks. Raises BadInput, naming the file and what is wrong with it. Unless ``strict``, what is wrong with some of
    several files is in ``origin["failed"]`` and in the notes, and the others are read.
    """
    if not isinstance(path, (str, os.PathLike)):
        return _join(list(path), "an empty list", strict)
    place = Path(path)
    found = format_of(place)
    if found == "folder":
        return _join(_traces(place), f"{place}: a folder without traces", strict)
    if found == "opscope_profile":
        from .profile import reader as opscope_profile

        return opscope_profile.read(place)[0]
    trace: Trace
    if found == "recording":  # by name: what reads it is above this room
        trace = import_module("opscope.backends.recorder").collect(place, strict)
    else:
        trace = import_module(f"opscope.readers.{found}.reader").read(place)
    return trace


def format_of(path: str | os.PathLike[str]) -> str:
    """Which reader takes the file: the name of a module here, ``recording`` or ``folder``. Raises BadInput."""
    place = Path(path)
    try:
        if place.is_dir():
            if (place / "meta.json").is_file():
                return "recording" if _is_part(place) else "opscope_profile"
            if any(map(_is_part, place.glob("part-*"))):
                return "recording"
            if import_module("opscope.readers.xplane.reader").files(place):
                return "xplane"
            return (
                "nsys"
                if import_module("opscope.readers.nsys.reader").recognise(place)
                else "folder"
            )
        if place.exists() and not place.is_file():  # to open a pipe would wait for its writer
            raise BadInput(path, "a pipe or a device: a trace is read more than once, from a file")
        if _in_profile(place):
            raise BadInput(path, f"a file of a profile: name its folder, {place.parent}")
        with place.open("rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        raise BadInput(path, "no such file") from None
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error
    if not head:
        raise BadInput(path, "the file is empty")
    if head.startswith(_SQLITE):
        return _database(place)
    if head.startswith((_GZIP, _ZSTD)):
        from .kineto.json_events import read_blocks

        head = next(read_blocks(place), b"")
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        viewer = import_module("opscope.readers.xplane.viewer_json").recognise(head)
        return "xplane" if viewer else "kineto"
    if import_module("opscope.readers.xplane.reader").recognise(head):
        return "xplane"
    if import_module("opscope.readers.nsys.reader").recognise(
        place
    ):  # a report, known by its name only
        return "nsys"
    raise BadInput(
        path, "not a trace: neither SQLite, nor JSON, nor XPlane, nor a profile of opscope"
    )


def _is_part(folder: Path) -> bool:
    """Whether a process has recorded into ``folder``."""
    meta = folder / "meta.json"
    if not meta.is_file():
        return False
    with meta.open("rb") as file:
        return b'"format": "opscope-recording"' in file.read(64)


def _database(place: Path) -> str:
    for name in _DATABASES:
        try:
            reader = import_module(f"opscope.readers.{name}.reader")
        except ModuleNotFoundError as error:
            if error.name == f"opscope.readers.{name}.reader":
                continue
            raise
        if reader.recognise(place):
            return name
    raise BadInput(place, "a SQLite database that is no trace of Nsight Systems, nvprof or DLProf")


def _traces(folder: Path) -> list[Path]:
    """What is in a folder: files and profiles whose first bytes are a trace's, in order of name."""
    found = []
    for place in sorted(folder.iterdir()):
        if place.name.startswith("."):
            continue
        try:
            if format_of(place) != "folder":
                found.append(place)
        except BadInput:  # a log or a README beside the traces
            continue
    return found


def _join(
    paths: list[str | os.PathLike[str]] | list[Path], none: str, strict: bool = True
) -> Trace:
    from opscope.core.tables.trace import concat

    if not paths:
        where, _, what = none.rpartition(": ")
        raise BadInput(where or "()", what)
    _refuse_twice(paths)
    parts: list[Trace] = []
    failed: list[BadInput] = []
    for path in paths:
        try:
            part = open(path, strict=strict)
            for name in part.tables:  # a profile's are read when they are asked for
                part[name]
            parts.append(part)
        except BadInput as error:
            if strict or len(paths) == 1:
                raise
            failed.append(error)
    if not parts:
        raise failed[0] if len(failed) == 1 else NoneReadable(failed)
    trace = concat(parts)
    inner = [part.origin for part in parts]
    trace.origin["files"] = len(failed) + sum(one.get("files", 1) for one in inner)
    lost = [{"path": one.path, "what": one.what} for one in failed]
    lost += [item for one in inner for item in one.get("failed", ())]
    if lost:
        trace.origin["failed"] = lost
    for one in failed:
        trace.note("error", f"left out: {one}")
    return trace


def _refuse_twice(paths: Sequence[str | os.PathLike[str]]) -> None:
    """Raise BadInput where two paths are one file, or files of equal content: all would count twice."""
    seen: dict[tuple[int, int], str] = {}
    sizes: dict[int, list[str]] = {}
    for path in [os.fspath(one) for one in paths]:
        try:
            found = os.stat(path)
        except OSError:  # whoever opens it says so
            continue
        same = seen.get((found.st_dev, found.st_ino))
        if same is not None:
            raise BadInput(path, "given twice" + (f" (as {same})" if same != path else ""))
        seen[found.st_dev, found.st_ino] = path
        content = _content(Path(path))
        size = sum(os.path.getsize(file) for file in content)
        for other in sizes.get(size, ()):
            if size and _equal(content, _content(Path(other))):
                raise BadInput(path, f"the same as {other}: it would count twice")
        sizes.setdefault(size, []).append(path)


def _content(path: Path) -> list[Path]:
    """The file, or the files of a profile, in order; none of another folder or of what is no file."""
    if path.is_file():
        return [path]
    if not (path / "meta.json").is_file():
        return []
    return sorted(one for one in path.rglob("*") if one.is_file())


def _equal(one: list[Path], other: list[Path]) -> bool:
    return (
        len(one) == len(other)
        and all(
            first.name == second.name or len(one) == 1
            for first, second in zip(one, other, strict=True)
        )
        and all(
            filecmp.cmp(first, second, shallow=False)
            for first, second in zip(one, other, strict=True)
        )
    )


def _in_profile(place: Path) -> bool:
    """Whether it is one of the files that a profile of ours is made of."""
    meta = place.parent / "meta.json"
    if not meta.is_file() or not (place.suffix == ".parquet" or place == meta):
        return False
    with meta.open("rb") as file:
        return b'"format": "opscope"' in file.read(64)
