"""Run a function once PyTorch has initialised CUDA, and say whether it has.

PyTorch initialises CUDA on first use and then runs the calls given to ``torch.cuda._lazy_call``. Up to
2.14 that function takes a plain lock, which PyTorch holds while those calls run. So it deadlocks when
one of those calls uses it, and when a thread that holds a lock of ours uses it while such a call waits
for our lock. This module never takes PyTorch's lock: it appends to the queue itself. Queued calls run
with device 0 current, whichever device the program is about to choose: they must not create a context.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from types import ModuleType

_log = logging.getLogger(__name__)


def in_use(cuda: ModuleType) -> bool:
    """Whether CUDA is initialised, or this thread is initialising it. ``cuda`` is ``torch.cuda``."""
    # during initialisation is_initialized() is still false, but the device count is already queried
    return bool(cuda.is_initialized()) or hasattr(cuda._tls, "is_initializing")


def when_in_use(cuda: ModuleType, function: Callable[[], None]) -> None:
    """Call ``function`` once PyTorch has initialised CUDA, on the thread that does so; now if it has.

    ``function`` is called at most once. Its exceptions are logged, as PyTorch would raise them into the
    program. Raises AttributeError if this version of PyTorch has no such queue.
    """
    waiting = [function]

    def begun() -> None:
        try:
            found = waiting.pop()  # if two threads get here, only one gets the function
        except IndexError:
            return
        try:
            found()
        except Exception:  # noqa: BLE001 - PyTorch would raise it into the user's program
            _log.exception("opscope: a hook that waited for CUDA failed when CUDA was initialised")

    if not in_use(cuda):
        cuda._queued_calls.append((begun, traceback.format_stack(limit=1)))
        if not cuda.is_initialized():
            return
    begun()  # CUDA was initialised before, or by another thread between the two checks
