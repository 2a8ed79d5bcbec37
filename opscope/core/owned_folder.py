"""Open a folder or a file that only this user (or root) can have written, and check what was opened.

Another user of the machine may know the name of our folder in the temporary directory, create it first, put
links into it, or swap a file between a check and its use. So the folder is opened once, without following a
link, its descriptor is checked, and all further access goes through that descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path:
    """Return the user's cache: OPSCOPE_CACHE, else XDG_CACHE_HOME/opscope, else ~/.cache/opscope."""
    chosen, home = os.environ.get("OPSCOPE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(chosen or ((Path(home) if home else Path.home() / ".cache") / "opscope"))


@contextlib.contextmanager
def opened(path: Path, private: bool = False) -> Iterator[int]:
    """Open a folder and yield its descriptor.

    Raises OSError if it is missing or a link, and PermissionError as ``check`` does.
    """
    folder = open_folder(path, private)
    try:
        yield folder
    finally:
        os.close(folder)


def open_folder(path: Path, private: bool = False) -> int:
    """Return the checked descriptor of a folder, which the caller closes. Raises as ``opened``."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        kind = "a link" if path.is_symlink() else "no folder"
        raise NotADirectoryError(f"{path} is {kind}") from None
    try:
        check(folder, path, private)
    except BaseException:  # nothing else closes the descriptor, however the check ended
        os.close(folder)
        raise
    return folder


def check(descriptor: int, path: Path, private: bool = False) -> None:
    """Raise PermissionError unless this user or root owns the file and no other user may write to it.

    With ``private``, this user must own it, and nobody else may have any access.
    """
    status = os.fstat(descriptor)
    if status.st_uid not in ((os.geteuid(),) if private else (os.getuid(), 0)):
        raise PermissionError(f"{path} belongs to another user")
    if private and stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"other users may use {path} (to fix: chmod 700)")
    if status.st_mode & 0o022:
        raise PermissionError(f"other users may write to {path} (to fix: chmod go-w)")
