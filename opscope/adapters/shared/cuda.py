"""When PyTorch begins to use CUDA: calls for that moment, and whether it has come.

PyTorch initialises CUDA when it is first used, and then runs what ``torch.cuda._lazy_call`` was given.
Up to 2.14 that function takes a plain lock, which is held while those calls run: asked from within one
of them it waits for ever, and asked by a thread that holds a lock of ours, while such a call waits for
that lock, so do both. So the lock is never taken here; the queue itself is appended to. What runs from
the queue has device 0, whichever the program is about to choose: it must make no context.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from types import ModuleType

_log = logging.getLogger(__name__)


def in_use(cuda: ModuleType) -> bool:
    """Whether CUDA is initialised, or this thread is about it, of PyTorch's module ``torch.cuda``."""
    # while it is being initialised it does not say so yet, and the device count is already asked for
    return bool(cuda.is_initialized()) or hasattr(cuda._tls, "is_initializing")


def when_in_use(cuda: ModuleType, what: Callable[[], None]) -> None:
    """Call ``what`` once PyTorch has initialised CUDA, on the thread that does; now where it has.

    Once, at most. What it raises is logged: PyTorch would raise it into the program. Raises
    AttributeError where this PyTorch keeps no such queue.
    """
    waiting = [what]

    def begun() -> None:
        try:
            found = waiting.pop()  # of two threads that come here, one finds it
        except IndexError:
            return
        try:
            found()
        except Exception:  # noqa: BLE001 - PyTorch would raise it into the user's program
            _log.exception("opscope: what was to begin with CUDA could not")

    if not in_use(cuda):
        cuda._queued_calls.append((begun, traceback.format_stack(limit=1)))
        if not cuda.is_initialized():
            return
    begun()  # initialised long ago, or by another thread between the two questions
