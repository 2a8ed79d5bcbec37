"""Read an SQLite database whose writer did not finish: from a copy, which SQLite recovers by its side files.

``sqlite.Database`` opens a database without its ``-wal`` or ``-journal``: rows that a writer left in those
would be missing, and rows that it took back would remain. The user's file is only read. A database that a
process holds locked is still being written, and is refused.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import BadInput
from .heads import SIDES, SQLITE

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: The most bytes of a database and its side files that are copied.
LARGEST: Final = 4 << 30
#: How a write-ahead log, and a rollback journal that is in use, begin (sqlite.org/fileformat2.html, 3 and 4).
_LOG: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEAD: Final = 32
_JOURNAL: Final = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
#: Where writers lock a database and the index of its log, and how many bytes (PENDING_BYTE and RESERVED_BYTE
#: of SQLite's os_unix.c, WAL_WRITE_LOCK of its wal.c).
_LOCKS: Final = (("", 0x40000000, 2), ("-shm", 120, 1))


def recognise(head: bytes, path: Path) -> bool:
    """Whether the database has side files that matter, or is locked by its writer. Raises OSError."""
    if not head.startswith(SQLITE):
        return False
    return bool(_sides(path)) or _is_locked(path)


def read(path: Path, open_trace: Callable[[Path], Trace]) -> Trace:
    """Return the trace in a recovered copy of the database, with a note. Raises BadInput."""
    from opscope.remote.copied import scratch  # lazy: few databases are unfinished

    from . import at_urls

    if _is_locked(path):
        raise BadInput(path, "a process is still writing it: wait until that has ended")
    with scratch() as folder:
        try:
            copy, note = _recover(path, folder)
        except OSError as error:
            raise BadInput(path, f"cannot be copied: {error.strerror or error}") from error
        except sqlite3.Error as error:
            reason = f"its writer did not finish, and SQLite cannot recover it ({error})"
            raise BadInput(path, reason) from error

        def named(text: str) -> str:
            return text.replace(os.fspath(copy), os.fspath(path))

        try:
            trace = open_trace(copy)
        except BadInput as error:
            raise BadInput(named(error.path), named(error.what)) from error
        for name in trace.tables:
            trace[name]
    at_urls.rename(trace, named)
    trace.note("warning", note, first=True)
    return trace


def _beside(path: Path, suffix: str) -> Path:
    """Return the path of a side file: beside the target of a link, where the writer puts it, else beside
    the link."""
    target = Path(os.path.realpath(path))
    side = target.with_name(target.name + suffix)
    return side if side.is_file() else path.with_name(path.name + suffix)


def _sides(path: Path) -> list[Path]:
    """Return the side files of the database with rows that it lacks, or changes to undo."""
    sides = []
    for suffix, heads, least in zip(SIDES, (_LOG, (_JOURNAL,)), (_LOG_HEAD + 1, 1), strict=True):
        side = _beside(path, suffix)
        if not side.is_file() or side.stat().st_size < least:
            continue
        with side.open("rb") as file:
            if file.read(8).startswith(heads):
                sides.append(side)
    return sides


def _recover(path: Path, folder: Path) -> tuple[Path, str]:
    """Copy the database and let SQLite recover the copy. Returns its path, and the text of a note."""
    sides = _sides(path)
    files = [path, *sides]
    before = _stamps(files)
    size = sum(length for length, _ in before)
    room = min(LARGEST, shutil.disk_usage(folder).free)
    names = " and ".join(side.name for side in sides)
    if size > room:
        raise BadInput(
            path,
            f"its writer did not finish: {names} belongs to it, and a copy of {size:,} bytes is more than "
            f"the {room:,} allowed; to merge both, run in a copy: sqlite3 FILE 'PRAGMA wal_checkpoint'",
        )
    for side in sides:
        if side.name.endswith("-journal") and _names_another(side):
            raise BadInput(
                path, f"its writer did not finish: {names} is shared by several databases"
            )
    copy = folder / path.name
    shutil.copyfile(path, copy)
    for side in sides:
        shutil.copyfile(side, folder / (path.name + side.name[side.name.rindex("-") :]))
    if _stamps(files) != before or _is_locked(path):
        raise BadInput(path, "it changed while it was read: wait until its writer has ended")
    with closing(sqlite3.connect(copy)) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        _, _, pages = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        database.execute("PRAGMA journal_mode = DELETE")
    if any(side.name.endswith("-journal") for side in sides):
        note = f"its writer did not finish: what {names} was to take back is taken back"
    elif pages > 0:
        note = f"its writer did not finish: {pages:,} pages in {names} are taken in"
    else:
        note = f"its writer did not finish: {names} has no whole transaction"
    return copy, f"{note}; later records may be missing"


def _stamps(files: list[Path]) -> list[tuple[int, int]]:
    return [(file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _names_another(journal: Path) -> bool:
    """Whether the journal ends with the name of a journal of several databases: SQLite would open, and may
    remove, the file that it names."""
    with journal.open("rb") as file:
        file.seek(max(0, journal.stat().st_size - len(_JOURNAL)))
        return file.read() == _JOURNAL


def _is_locked(path: Path) -> bool:
    """Whether a process holds a writer's lock on the database; False where the system does not say."""
    if sys.platform != "linux":  # the layout of the request is the system's own
        return False
    import fcntl

    for suffix, start, length in _LOCKS:  # only a writer's lock keeps a reader out
        file = _beside(path, suffix) if suffix else path
        if not file.is_file():
            continue
        asked = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
        try:
            with file.open("rb") as opened:
                answer = fcntl.fcntl(opened, fcntl.F_GETLK, asked)
        except OSError:
            continue
        if struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK:
            return True
    return False
