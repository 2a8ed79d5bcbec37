"""Choose the reader of a file: opscope's readers for its looks, in their order, then other packages'."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from opscope.core.registered import entry_points

from .base import Reader
from .containers import split
from .errors import BadInput, Truncated
from .heads import PACKED, SQLITE
from .looks import LOOKS

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

_log = logging.getLogger(__name__)
#: The entry point group in which other packages register a ``Reader``.
GROUP: Final = "opscope.readers"
#: Asked after other packages' readers, because it accepts all JSON; its errors explain best what a file
#: lacks.
_LAST: Final = "kineto"
#: The reader of archives and of files packed twice; the traces inside are read as usual.
CONTAINERS: Final = "containers"
#: The reader that recovers databases whose writer did not finish.
UNFINISHED: Final = "unfinished"
#: Readers that use the model that ran.
_WITH_MODEL: Final = ("onnxruntime",)
#: How many bytes of a file are read to recognise its format.
_HEAD: Final = 4096


@dataclass(frozen=True, slots=True)
class Found:
    """A reader and its name: a package here, or another package's entry point."""

    name: str
    reader: Reader
    ours: bool

    @property
    def takes_model(self) -> bool:
        """Whether the reader needs the model that ran to interpret the file."""
        return self.ours and self.name in _WITH_MODEL

    def read(self, path: Path, lean: bool = False, model: Path | None = None) -> Trace:
        """Return the trace in ``path``. ``lean`` leaves out the columns that totals do not need, if the
        reader supports that; ``model`` is the model that ran, if ``takes_model``. Raises BadInput."""
        if model is not None:
            of_model: Trace = self.reader.read(path, model)  # type: ignore[call-arg]
            return of_model
        if not self.ours:
            return _read(self, path)
        trace: Trace = getattr(self.reader, "read_lean" if lean else "read", self.reader.read)(path)
        return trace


def find(path: Path) -> Found | None:
    """Return the reader of ``path``, or None for a folder that is not itself a trace. Raises BadInput."""
    try:
        if split(path) is not None:
            return _ours(CONTAINERS)
        is_folder = path.is_dir()
        head = b"" if is_folder else _head(path)
        if head.startswith(SQLITE) and _ours(UNFINISHED).reader.recognise(head, path):
            return _ours(UNFINISHED)
        packed = not is_folder and _ours(CONTAINERS).reader.recognise(head, path)
        for name, look in LOOKS.items():
            if packed:  # its first bytes are not those of a trace
                break
            if look.fits(head, path, is_folder) and _ours(name).reader.recognise(head, path):
                return _ours(name)
        for entry in _others(tuple(sys.path)):
            if _recognises(entry, head, path):
                return entry
        if packed:
            return _ours(CONTAINERS)
        if _ours(_LAST).reader.recognise(head, path):
            return _ours(_LAST)
        if is_folder:
            return None
    except FileNotFoundError:
        raise BadInput(path, "no such file") from None
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error
    from . import foreign  # lazy: few files are refused

    if head.startswith(SQLITE):
        raise BadInput(path, foreign.of_database(path))
    complaint = foreign.of_bytes(head, path.name)
    if complaint:
        raise BadInput(path, complaint)
    raise BadInput(
        path, "not a trace: opscope reads SQLite, JSON, CSV and XPlane files, and its own profiles"
    )


def _head(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
        raise BadInput(
            path, "a pipe or a device: a trace is read several times, so save it to a file"
        )
    if _in_profile(path):
        raise BadInput(path, f"a file inside a profile: open its folder, {path.parent}")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(PACKED):
        from .kineto.json_events import read_blocks  # lazy: it loads decoders

        blocks, head = read_blocks(path), b""
        try:
            # the first piece may be small
            while len(head) < _HEAD and (block := next(blocks, b"")):
                head += block
        except Truncated:
            if not head:  # else the reader reports the early end
                raise
    if not head.strip(b"\0 \t\r\n"):
        reason = f"its first {len(head):,} bytes are zeros or blanks: its writer did not finish it"
        raise BadInput(path, reason if head else "the file is empty")
    return head


def _in_profile(path: Path) -> bool:
    """Whether ``path`` is a file inside an opscope profile."""
    meta = path.parent / "meta.json"
    if not meta.is_file() or not (path.suffix == ".parquet" or path == meta):
        return False
    with meta.open("rb") as file:
        return b'"format": "opscope"' in file.read(64)


@lru_cache
def _ours(name: str) -> Found:
    return Found(name, cast(Reader, import_module(f"opscope.readers.{name}")), True)


# ------------------------------------------------------------------------------ other packages


@lru_cache(maxsize=1)
def _others(path: tuple[str, ...]) -> tuple[Found, ...]:
    """Return the readers of other packages on ``sys.path``, sorted by name, without those that fail to
    load."""
    entries = []
    for point in sorted(entry_points(group=GROUP), key=lambda point_: point_.name):
        try:
            if point.name in (*LOOKS, _LAST):
                raise ValueError("the name belongs to one of opscope's own readers")
            reader = point.load()
            if not all(callable(getattr(reader, name, None)) for name in ("recognise", "read")):
                raise TypeError("it lacks recognise(head, path) or read(path)")
        except Exception as error:  # noqa: BLE001 - another package's fault must not block other files
            _log.warning("opscope: the reader %s is left out: %s", _of(point), _describe(error))
        else:
            entries.append(Found(point.name, reader, False))
    return tuple(entries)


def _recognises(entry: Found, head: bytes, path: Path) -> bool:
    try:
        return bool(entry.reader.recognise(head, path))
    except Exception as error:  # noqa: BLE001 - the same
        _log.warning("opscope: the reader %s cannot say whether it reads %s: %s",
                     entry.name, os.fspath(path), _describe(error))  # fmt: skip
        return False


def _read(entry: Found, path: Path) -> Trace:
    from opscope.core.tables.trace import Trace  # lazy: they load Polars

    from .sound import sound_trace

    try:
        trace = entry.reader.read(path)
        if not isinstance(trace, Trace):
            raise TypeError(f"it returned {type(trace).__name__}, not a Trace")
        return sound_trace({name: trace[name] for name in trace.present}, trace.origin)
    except BadInput:
        raise
    except Exception as error:
        message = f"the reader {entry.name} of another package failed: {_describe(error)}"
        raise BadInput(path, message) from error


def _of(point: EntryPoint) -> str:
    return f"{point.name} ({point.value})"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
