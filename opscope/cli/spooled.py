"""Read a trace from stdin: ``-`` as a file is copied to a private file that is gone when the command ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from . import common

#: The most that is read from stdin, if the disk has room: the size of a database of 50 million kernels.
LIMIT: Final = 32 << 30
#: Free space to leave on the disk that holds the copy.
_SPARE: Final = 256 << 20
_CHUNK: Final = 4 << 20
STDIN: Final = "-"


@contextlib.contextmanager
def spooled(files: list[str]) -> Iterator[list[str]]:
    """Yield ``files`` with the path of a copy of stdin in place of ``-``.

    Ends the command if stdin is closed, a terminal, empty, or larger than the limit or the disk allows.
    """
    if STDIN not in files:
        yield files
        return
    if files.count(STDIN) > 1:
        common.fail("- (stdin) can be given only once")
    if sys.stdin is None or sys.stdin.closed:
        common.fail("stdin is closed")
    if sys.stdin.isatty():
        common.fail("stdin is a terminal: pipe a trace into the command, or name a file")
    # a folder that only this user may enter: a trace may hold paths, names and shapes of a stranger's model
    with _folder() as folder:
        copy = folder / "stdin"
        _copy(sys.stdin.buffer, copy)
        from opscope.readers.errors import BadInput  # lazy: each reader loads what it needs

        try:
            yield [str(copy) if file == STDIN else file for file in files]
        except BadInput as error:
            if error.path != str(copy):
                raise
            common.fail(f"stdin: {error.what}")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="opscope-stdin-")
    except OSError as error:
        common.fail(f"no folder for a copy of stdin: {error.strerror or error}")
    with folder as name:
        yield Path(name)


def _copy(source: BinaryIO, to: Path) -> None:
    room = max(shutil.disk_usage(to.parent).free - _SPARE, 0)
    most = min(LIMIT, room)
    done = 0
    try:
        with open(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            while chunk := source.read(_CHUNK):
                done += len(chunk)
                if done > most:
                    why = "that is the limit" if most == LIMIT else f"{to.parent} has no more room"
                    common.fail(f"stdin is larger than {most:,} bytes ({why}): name a file instead")
                file.write(chunk)
    except OSError as error:
        common.fail(f"cannot copy stdin to {to.parent}: {error.strerror or error}")
    if not done:
        common.fail("stdin is empty: a trace was expected")
