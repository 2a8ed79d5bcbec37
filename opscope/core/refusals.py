"""What the system refuses, in its own words and with the way out: a full disk, a limit, no permission."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

if sys.platform != "win32":
    import resource

_ELSEWHERE: Final = "choose another folder"
#: The way out of what a user can change.
WAYS_OUT: Final = {
    errno.EMFILE: "raise the limit: ulimit -n",
    errno.ENFILE: "the whole machine has no more: end other programs",
    errno.EFBIG: "raise the limit, ulimit -f, or choose another file system",
    errno.ENOSPC: "free some, or choose another disk",
    errno.EDQUOT: "free some, or choose another disk",
    errno.EROFS: _ELSEWHERE,
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
}


def refuse_size(size: int) -> None:
    """Raise OSError if the process may not write a file of ``size`` bytes.

    The system says so by SIGXFSZ, and what that does is for the program to choose: it may be its end.
    """
    if sys.platform == "win32":
        return
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and size > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def refusal(error: OSError) -> str:
    """Return the system's words for an error, with the way out if there is one."""
    words = error.strerror or str(error)
    way_out = None if error.errno is None else WAYS_OUT.get(error.errno)
    return words if way_out is None or error.strerror is None else f"{words} ({way_out})"
