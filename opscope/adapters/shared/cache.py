"""The cache of native libraries: folders and files that only this user (or root) can have written.

Another user of the machine may know the name of our folder in the temporary directory, create it first,
put links into it, or swap a file between a check and its use. So opscope opens a folder or file once,
without following a link, checks the open descriptor, and reads or loads through that descriptor.
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

#: glibc treats two libraries loaded under one name as the same library. Descriptor numbers are reused,
#: so each name gets a different number of slashes.
_SLASHES: Final = itertools.count(1)


def folders() -> list[Path]:
    """Return the cache folders, best first. New files go to the first one that is writable.

    The user's folder may be a link and is resolved. Links in the temporary directory are not followed.
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
    """Create ``folder`` if it is missing. Raises OSError if it is not ours or not writable."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _folder(folder):
        if not os.access(folder, os.W_OK):
            raise PermissionError("the folder is not writable")


def find(name: str) -> Path | None:
    """Return the path of file ``name`` in the first folder that has it, if both are ours, else None."""
    for folder in folders():
        path = folder / name
        with contextlib.suppress(OSError), opened(path):
            return path
    return None


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open the file for reading and yield its descriptor.

    Raises OSError if the file or its folder is not ours.
    """
    with _folder(path.parent) as folder:
        # O_NONBLOCK: opening a pipe that has no writer would wait
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(path.name, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise PermissionError(f"{path} is not a regular file")
        _check(file, path)
        yield file
    finally:
        os.close(file)


def load(path: Path) -> ctypes.CDLL:
    """Load the library through the checked descriptor.

    Raises OSError if it is not ours or cannot be loaded.
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
    """Raise PermissionError unless this user or root owns it and no other user may write to it."""
    status = os.fstat(descriptor)
    if status.st_uid not in (os.getuid(), 0):
        raise PermissionError(f"{path} belongs to another user")
    if status.st_mode & 0o022:
        raise PermissionError(f"other users may write to {path} (to fix: chmod go-w)")
