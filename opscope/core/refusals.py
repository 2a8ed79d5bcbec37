"""Messages for errors of the system, with advice: a full disk, a limit, no permission."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

if sys.platform != "win32":
    import resource

_ELSEWHERE: Final = "choose another folder"
#: Advice on errors that a user can resolve.
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
    """Raise OSError if the process must not write a file of ``size`` bytes. The system would report it by
    SIGXFSZ, which ends a program that does not handle it."""
    if sys.platform == "win32":
        return
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and size > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def refusal(error: OSError) -> str:
    """Return the system's words for an error, with advice if there is any."""
    words = error.strerror or str(error)
    way_out = None if error.errno is None else WAYS_OUT.get(error.errno)
    return words if way_out is None or error.strerror is None else f"{words} ({way_out})"
