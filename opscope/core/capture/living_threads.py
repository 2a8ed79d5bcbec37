"""Find out which threads of the process are alive."""

from __future__ import annotations

import gc
import sys
from typing import Final

#: Before Python 3.12 an allocation may collect garbage at once, also inside ``sys._current_frames``.
_COLLECTS: Final = sys.version_info < (3, 12)


def living_threads() -> set[int]:
    """Return the idents of the threads that are alive.

    Until Python 3.11, the program would stop for ever if garbage with a ``threading.local`` were collected
    inside ``sys._current_frames``: both take the interpreter's lock of its threads.

    Frames are not returned: the caller's own frame is among them. It would keep itself alive, and all objects
    of its callers, until the garbage collector finds the cycle.
    """
    pause = _COLLECTS and gc.isenabled()
    if pause:
        gc.disable()
    try:
        return set(sys._current_frames())
    finally:
        if pause:
            gc.enable()
