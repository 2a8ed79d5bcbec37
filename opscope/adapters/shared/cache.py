"""Where native libraries are kept: folders and files that nobody but this user can have written.

Another user of the machine may know the name of the folder in the temporary directory, make it first,
lay links in it, or exchange a file between a check and its use. So a folder and a file are opened once,
without following a link, checked by what was opened, and loaded or read through that descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: glibc takes a library that it loaded by the same name for the same library. The descriptor's number
#: is used again, so each name gets another number of slashes.
_SLASHES: Final = itertools.count(1)


def folders() -> list[Path]:
    """Where files are looked for, best first; new ones go to the first that can be written.

    What the user names may be a link, and is resolved; a link in the temporary directory is not followed.
    """
    chosen = os.environ.get("OPSCOPE_CACHE")
    if chosen:
        first = Path(chosen)
    else:
        home = os.environ.get("XDG_CACHE_HOME")
        first = (Path(home) if home else Path.home() / ".cache") / "opscope"
    shared = Path(tempfile.gettempdir()).resolve()
    return [first.resolve(), shared / f"opscope-{os.getuid()}"]


def prepare(folder: Path) -> None:
    """Make ``folder`` where it is missing. Raises OSError where it is not ours, or cannot be written."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _folder(folder):
        if not os.access(folder, os.W_OK):
            raise PermissionError("it cannot be written")


def find(name: str) -> Path | None:
    """The file ``name`` of the first folder that has it, where both are ours."""
    for folder in folders():
        path = folder / name
        with contextlib.suppress(OSError), opened(path):
            return path
    return None


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the file, to read. Raises OSError where it or its folder is not ours."""
    with _folder(path.parent) as folder:
        # a pipe that nobody writes to would wait
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(path.name, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise PermissionError(f"{path} is no file")
        _check(file, path)
        yield file
    finally:
        os.close(file)


def load(path: Path) -> ctypes.CDLL:
    """The library, loaded through the descriptor that was checked.

    Raises OSError where it is not ours or cannot be loaded.
    """
    with opened(path) as file:
        return ctypes.CDLL(f"/proc/self/fd{'/' * next(_SLASHES)}{file}")


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(folder, path)
        yield folder
    finally:
        os.close(folder)


def _check(descriptor: int, path: Path) -> None:
    """Raises PermissionError unless it is this user's or root's, and no other may write to it."""
    status = os.fstat(descriptor)
    if status.st_uid not in (os.getuid(), 0):
        raise PermissionError(f"{path} belongs to another user")
    if status.st_mode & 0o022:
        raise PermissionError(f"others may write to {path} (chmod go-w)")
