"""The user's files that a recording names, each with its hash, which shows later whether a file is unchanged.
A file is noted when its first call is seen (its size and time of change, 2 µs) and hashed when the recording
ends, if it has not changed since. A file of a private recording (``OPSCOPE_PRIVATE=1``) is not named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, Final

from opscope.core.process_specs import PRIVATE

#: Further files, and larger ones, are left out: a program has hundreds, of some 10 kB.
MOST: Final = 1_000
LARGEST: Final = 4 << 20
#: Name in the range text → path, size, time of change in ns.
_seen: Final[dict[str, tuple[str, int, int]]] = {}
_hashed: Final[dict[tuple[str, int, int], str]] = {}


def note(shown: str, path: str) -> None:
    """Note the file ``path``, which the range text names ``shown``. Never raises."""
    if len(_seen) >= MOST or shown in _seen:
        return
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return
    if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
        _seen[shown] = (path, status.st_size, status.st_mtime_ns)


def facts() -> Iterator[dict[str, Any]]:
    """Yield a fact of the recording for each file that has not changed since it was noted."""
    if os.environ.get(PRIVATE) == "1":
        return
    for shown, key in list(_seen.items()):
        digest = _hashed.get(key) or _digest(*key)
        if digest is not None:
            _hashed[key] = digest
            yield {"source_file": shown, "path": key[0], "sha256": digest}


def _digest(path: str, size: int, changed: int) -> str | None:
    try:
        with open(path, "rb") as file:
            now = os.fstat(file.fileno())
            if (now.st_size, now.st_mtime_ns) != (size, changed):
                return None
            from hashlib import sha256  # lazy: only a recording's end needs it

            return sha256(file.read(LARGEST)).hexdigest()
    except OSError:
        return None
