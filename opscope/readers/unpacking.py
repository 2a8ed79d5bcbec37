"""Unpack a file or an archive to scratch, within bounds, and read the trace in it. It writes only below
scratch, which is removed at the end."""

from __future__ import annotations

import codecs
import contextlib
import errno
import filecmp
import gzip
import io
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

from opscope.core import progress
from opscope.remote.copied import scratch

from . import at_urls, foreign
from .containers import BZ2, XZ, ZIP, encoding, is_archive, split
from .errors import TRUNCATED, BadInput, cut_off
from .heads import PACKED, SIDES, SQLITE, ZSTD_MODULE

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: Returns the reader of a file or folder, or None. Raises BadInput.
Find: TypeAlias = "Callable[[Path], object | None]"
#: The most that is unpacked, in bytes, and how many times its size a file may unpack to beyond ``FREE``. Real
#: traces pack 10 to 40 times.
LARGEST: Final = 16 << 30
RATIO: Final = 200
FREE: Final = 256 << 20
#: Bit of a zip entry's flags.
_ENCRYPTED: Final = 1
#: The most entries of an archive, and the most levels of packing.
ENTRIES: Final = 20_000
DEPTH: Final = 4
LEFT_OUT: Final = (
    "that are links or encrypted, or whose path leaves it, repeats another or cannot be a file's,"
)
#: How many traces or files a complaint names.
_NAMED: Final = 8
#: A packed file that ends early loses up to this many bytes before its end.
_BLOCK: Final = 1 << 16
_GZIP, _ZSTD = PACKED
#: How packed streams begin, and what opens each.
_PACKINGS: Final = (
    (_GZIP, "gzip", "open"),
    (_ZSTD, ZSTD_MODULE, "ZstdFile"),
    (BZ2, "bz2", "BZ2File"),
    (XZ, "lzma", "LZMAFile"),
)
_SUFFIX: Final = re.compile(r"\.(?:gz|gzip|xz|bz2|zst|zstd)\Z", re.IGNORECASE)
_depth: ContextVar[int] = ContextVar("opscope_unpacked", default=0)
#: Why a file cannot have this path: another entry has this path, or is a file where the path needs a folder;
#: or the path is too long.
_NO_FILE: Final = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


def has_trace(path: Path, find: Find) -> bool:
    """Whether the file packed in ``path`` begins as a trace that ``find`` knows; False for archives.

    Raises BadInput.
    """
    try:
        with _scratch(path) as folder, _open(path) as (stream, head):
            if is_archive(head):
                return False
            start = folder / _SUFFIX.sub("", path.name)
            start.write_bytes(_text(stream).read(1 << 16))
            return find(start) is not None
    except BadInput:
        raise
    except _damages() as error:
        raise BadInput(path, f"cannot be unpacked: {error}") from error


def _damages() -> tuple[type[Exception], ...]:
    """Exceptions that unpackers raise for damaged files."""
    errors: list[type[Exception]] = [zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError]
    errors += [gzip.BadGzipFile, NotImplementedError, RuntimeError, ValueError, OverflowError]
    for module, name in (("lzma", "LZMAError"), (ZSTD_MODULE, "ZstdError")):
        # a Python without the module does not raise its errors
        with contextlib.suppress(ImportError):
            errors.append(getattr(import_module(module), name))
    return tuple(errors)


def read(path: Path, find: Find, open_trace: Callable[[Path], Trace]) -> Trace:
    """Return the one trace in the file, which ``find`` knows and ``open_trace`` reads.

    Raises BadInput, which names the traces if there are several.
    """
    archive, member = split(path) or (path, "")
    with _scratch(path) as folder:
        unpacked = _Unpacked(archive, member, folder / "unpacked")
        try:
            unpacked.unpack()
            chosen = unpacked.trace(find)
            trace = open_trace(chosen)
            # a profile reads its tables lazily, and the copy will be removed
            for name in trace.tables:
                trace[name]
        except BadInput as error:
            if not error.path.startswith(os.fspath(folder)):
                raise
            raise unpacked.renamed(error) from error
        unpacked.name_in(trace)
    lost = unpacked.lost_of(chosen)
    if lost:
        trace.origin[TRUNCATED] = lost
        trace.note("warning", cut_off(archive, lost), first=True)
    elif unpacked.lost:
        what = f"damaged entries of the archive beside the trace were left out ({unpacked.lost})"
        trace.note("warning", what, max(len(unpacked.damaged), 1))
    if unpacked.may_lack:
        trace.note(
            "warning",
            "packed from a database with a log, which lies beside it: records may be missing",
        )
    if unpacked.left_out:
        trace.note("warning", f"entries of the archive {LEFT_OUT} were left out", unpacked.left_out)
    return trace


@dataclass(slots=True)
class _Budget:
    """The bytes that may still be unpacked from a file of ``packed`` bytes."""

    path: Path
    packed: int
    taken: int = 0

    def take(self, size: int) -> None:
        self.taken += size
        if self.taken > LARGEST:
            raise BadInput(
                self.path, f"unpacks to over {LARGEST >> 30} GB: unpack it, and give its files"
            )
        if self.taken > max(FREE, RATIO * self.packed):
            raise BadInput(self.path, f"unpacks to over {RATIO} times its size, as no trace does")


class _Counted(io.RawIOBase):
    """A stream that charges the bytes read from it to a budget."""

    def __init__(self, stream: Any, budget: _Budget) -> None:
        self._stream, self._budget = stream, budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))  # ``read`` would lose the bytes before an early end
        self._budget.take(len(data))
        buffer[: len(data)] = data
        return len(data)


@dataclass(slots=True)
class _Unpacked:
    """The files of a packed file or archive, or of its ``member``, below ``folder``."""

    path: Path
    member: str
    folder: Path
    #: What is wrong with it, if anything.
    lost: str = ""
    left_out: int = 0
    #: Whether the database from which the file may have been packed has a log beside it.
    may_lack: bool = False
    is_archive: bool = False
    seen: set[str] = field(default_factory=set)
    #: The paths of files that are not whole.
    damaged: set[str] = field(default_factory=set)

    def unpack(self) -> None:
        """Write the files. Raises BadInput."""
        self.folder.mkdir()
        try:
            with (
                progress.stage(f"unpacking {self.path.name}"),
                _open(self.path) as (stream, head),
            ):
                self.is_archive = is_archive(head)
                if head.startswith(ZIP):
                    self._zip(stream)
                elif self.is_archive:
                    self._tar(stream)
                else:
                    name = _SUFFIX.sub("", _SUFFIX.sub("", self.path.name))
                    self._write(name, _text(stream))
                    if head.startswith(SQLITE):
                        self._write_sides(name)
        except BadInput:
            raise
        except _damages() as error:
            self.lost = str(error) or "it is damaged"
        except OSError as error:
            raise BadInput(self.path, f"cannot be unpacked: {error.strerror or error}") from error
        if self.lost and not self.seen:
            raise BadInput(self.path, f"cannot be unpacked: {self.lost}")
        if self.member and not self.seen:
            raise BadInput(self.path, f"has no member {self.member}")

    def _zip(self, stream: IO[bytes]) -> None:
        budget = _Budget(self.path, self.path.stat().st_size)
        if not stream.seekable():
            raise BadInput(self.path, "a zip archive that is packed itself: unpack it once")
        with _directory(stream) as archive:
            entries = archive.infolist()
            if len(entries) > ENTRIES:
                raise BadInput(self.path, f"has {len(entries)} entries, more than {ENTRIES}")
            wanted = [
                entry for entry in entries if not entry.is_dir() and self._is_wanted(entry.filename)
            ]
            _room(self.path, sum(entry.file_size for entry in wanted), self.folder)
            if wanted and all(entry.flag_bits & _ENCRYPTED for entry in wanted):
                raise BadInput(self.path, "needs a password: unpack it, and give its files")
            for entry in wanted:
                if stat.S_ISLNK(entry.external_attr >> 16) or entry.flag_bits & _ENCRYPTED:
                    self.left_out += 1
                    continue
                try:
                    with archive.open(entry) as file:
                        counted = io.BufferedReader(_Counted(file, budget), _BLOCK)
                        self._write(entry.filename, counted)
                except BadInput:
                    raise
                except _damages() as error:  # the entries after it may be undamaged
                    self.lost = f"{entry.filename}: {error}"

    def _write_sides(self, name: str) -> None:
        """Write a writer's files beside a packed database, packed or not: without them rows differ."""
        sides, live = [name + suffix for suffix in SIDES], self.path.with_name(name)
        if live.exists() and not (
            self.seen and filecmp.cmp(live, self.folder / name, shallow=False)
        ):
            beside = map(self.path.with_name, sides)
            self.may_lack = any(side.is_file() and side.stat().st_size for side in beside)
            return  # the side files belong to that other database
        for side in sides:
            packed = self.path.name[len(_SUFFIX.sub("", self.path.name)) :]
            for path in (self.path.with_name(side), self.path.with_name(side + packed)):
                if path.is_file():
                    with _open(path) as (stream, _):
                        self._write(side, stream)
                    break

    def _tar(self, stream: IO[bytes]) -> None:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for number, entry in enumerate(archive):
                if number >= ENTRIES:
                    raise BadInput(self.path, f"has more than {ENTRIES} entries")
                if entry.isdir() or not self._is_wanted(entry.name):
                    continue
                file = archive.extractfile(entry) if entry.isreg() else None
                if file is None:
                    self.left_out += 1
                else:
                    self._write(entry.name, file)

    def _is_wanted(self, name: str) -> bool:
        name = name.removeprefix("./")
        if not self.member or name.removeprefix(self.member) in ("", *SIDES):
            return True
        return name.startswith(self.member + "/")

    def _write(self, name: str, file: IO[bytes]) -> None:
        """Write a file at its path below the folder; a file whose path leads out of the folder, or
        repeats, is left out."""
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        if not parts or ".." in parts or name.startswith("/") or ":" in parts[0] or "\0" in name:
            self.left_out += 1
            return
        target, path = self.folder.joinpath(*parts), "/".join(parts)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            written = target.open("xb")
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            self.left_out += 1
            return
        self.seen.add(path)
        self.damaged.add(path)
        try:
            with written:
                read = file.read1 if isinstance(file, io.BufferedReader) else file.read
                while block := read(_BLOCK):
                    written.write(block)
            self.damaged.remove(path)
        finally:
            if path in self.damaged and not target.stat().st_size:  # no part of it can be read
                target.unlink()
                self.seen.remove(path)

    def lost_of(self, trace: Path) -> str:
        """Return what is wrong with the archive if files of the trace are incomplete, or may be missing."""
        hurt = trace.is_dir() or os.path.relpath(trace, self.folder) in self.damaged
        return self.lost if hurt else ""

    def trace(self, find: Find) -> Path:
        """Return the path of the only trace. Raises BadInput if there is none, or several."""
        if (message := foreign.of_names(self.seen)) is not None:
            raise BadInput(self.path, message)
        traces = sorted(_traces(self.folder, find))
        if len(traces) == 1:
            return traces[0]
        if len(self.seen) == 1:  # no trace: its reader says why
            return self.folder / next(iter(self.seen))
        if not self.seen:
            why = (
                f"entries {LEFT_OUT} are left out: {self.left_out}"
                if self.left_out
                else "it is empty"
            )
            raise BadInput(self.path, f"an archive without a trace: {why}")
        if not traces:
            raise BadInput(
                self.path, f"an archive without a trace: it has {_list(sorted(self.seen))}"
            )
        names = [os.path.relpath(trace, self.folder) for trace in traces]
        raise BadInput(
            self.path,
            f"an archive with {len(names)} traces: {_list(names)}; give one as {self.path.name}!{names[0]}, "
            "or unpack it and give its folder, whose files are read as the ranks of one job",
        )

    def _named(self, text: str) -> str:
        inner = f"{self.path}!" if self.is_archive else os.fspath(self.path)
        if not self.is_archive:
            text = text.replace(os.fspath(self.folder / next(iter(self.seen), "")), inner)
        return text.replace(os.fspath(self.folder) + "/", inner).replace(
            os.fspath(self.folder), os.fspath(self.path)
        )

    def renamed(self, error: BadInput) -> BadInput:
        """Return the error with the names of the archive and its members in place of the copies'."""
        return BadInput(self._named(error.path), self._named(error.what))

    def name_in(self, trace: Trace) -> None:
        """Let the trace name the archive and its member in place of the copy."""
        at_urls.rename(trace, self._named)


def _directory(stream: IO[bytes]) -> zipfile.ZipFile:
    """Open a zip archive by the list of entries at its end. Raises BadZipFile."""
    try:
        return zipfile.ZipFile(stream)
    except zipfile.BadZipFile as error:
        reason = (
            f"the list of entries at the end of the zip archive is missing or damaged ({error})"
        )
        raise zipfile.BadZipFile(reason) from error


def _traces(folder: Path, find: Find) -> Iterator[Path]:
    """Yield the traces below a folder: the folder itself, the files and folders in it, and the contents of
    these."""
    if find(folder) is not None:
        yield folder
        return
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__MACOSX")):
            continue
        if entry.is_dir():
            yield from _traces(entry, find)
            continue
        with contextlib.suppress(BadInput):  # a log or a README beside the traces
            if find(entry) is not None:
                yield entry


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


@contextlib.contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """Scratch for one packing. Raises BadInput if too many lie in each other."""
    depth = _depth.get()
    if depth >= DEPTH:
        raise BadInput(path, f"packed more than {DEPTH} times")
    token = _depth.set(depth + 1)
    try:
        with scratch() as folder:
            yield folder
    finally:
        _depth.reset(token)


def _room(path: Path, size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > min(free, LARGEST):
        what = f"unpacks to {size:,} bytes, and there is room for {min(free, LARGEST):,}"
        raise BadInput(path, f"{what}: unpack it, and give its files")


@contextlib.contextmanager
def _open(path: Path) -> Iterator[tuple[IO[bytes], bytes]]:
    """The file without its packings, and its first bytes. Raises BadInput and what damaged files raise."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        budget = _Budget(path, path.stat().st_size)
        stream: IO[bytes] = file
        for _ in range(DEPTH + 1):
            head = stream.peek(1024)  # type: ignore[attr-defined]
            unpack = _unpacker(path, head)
            if unpack is None:
                yield stream, head
                return
            inner = stack.enter_context(unpack(stream))
            stream = stack.enter_context(io.BufferedReader(_Counted(inner, budget), _BLOCK))
        raise BadInput(path, f"packed more than {DEPTH} times")


def _unpacker(path: Path, head: bytes) -> Any:
    """Return the function that opens a packed stream beginning with ``head``; None if it is not packed."""
    for magic, module, name in _PACKINGS:
        if head.startswith(magic):
            try:
                return getattr(import_module(module), name)
            except ImportError:
                raise BadInput(path, f"this Python has no module {module} to unpack it") from None
    return None


def _text(stream: IO[bytes]) -> IO[bytes]:
    """Return the stream with text of UTF-16 as UTF-8."""
    name = encoding(stream.peek(8)[:8])  # type: ignore[attr-defined]
    return stream if name is None else codecs.EncodedFile(stream, "utf-8", name, "replace")
