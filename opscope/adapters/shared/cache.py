"""The cache of native libraries: folders and files that only this user (or root) can have written.

``core/owned_folder.py`` checks that; files are read and loaded through the checked descriptor.
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

from opscope.core import owned_folder

#: glibc treats two libraries loaded under one name as the same library. Descriptor numbers are reused,
#: so each name gets a different number of slashes.
_SLASHES: Final = itertools.count(1)


def folders() -> list[Path]:
    """Return the cache folders, best first. New files go to the first one that is writable.

    The user's folder may be a link and is resolved. Links in the temporary directory are not followed.
    """
    shared = Path(tempfile.gettempdir()).resolve()
    return [owned_folder.cache_folder().resolve(), shared / f"opscope-{os.getuid()}"]


def prepare(folder: Path) -> None:
    """Create ``folder`` if it is missing. Raises OSError if it is not ours or not writable."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with owned_folder.opened(folder):
        if not os.access(folder, os.W_OK):
            raise PermissionError("the folder is not writable")


def find(name: str) -> Path | None:
    """Return the path of file ``name`` in the first folder that has it, if both belong to this user, else
    None."""
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
    with owned_folder.opened(path.parent) as folder:
        # O_NONBLOCK: opening a pipe that has no writer would wait
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(path.name, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise PermissionError(f"{path} is not a regular file")
        owned_folder.check(file, path)
        yield file
    finally:
        os.close(file)


def load(path: Path) -> ctypes.CDLL:
    """Load the library through the checked descriptor.

    Raises OSError if it is not ours or cannot be loaded.
    """
    with opened(path) as file:
        return ctypes.CDLL(f"/proc/self/fd{'/' * next(_SLASHES)}{file}")
