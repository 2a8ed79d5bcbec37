"""Make ops on the CPU run when they are called, so that an op's range contains its work.

PyNative mode only hands an op to a queue, on the CPU too: a product of 1500×1500 matrices that takes 110 ms
is "called" in 0.1 ms. On a GPU or an Ascend device kernels have times of their own. On the CPU nothing else
could be timed, so while something listens MindSpore must run each op before the next (its own option
``pynative_synchronize``), and each op is followed by a wait for the queue.

MindSpore reads the option once for most ops, before the first of the process: a capture that begins later
pays for a change of threads with each op. The wait itself costs 0.6 µs when there is nothing to wait for.

MindSpore's PyNative mode does not support several Python threads at a time: a program with three inferring
threads crashes in one run of three without opscope, and always if ops run in the calling thread. So threads
take turns while each op is waited for.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from mindspore import context

from .api import executor
from .call import device_name

_OPTION: Final = "pynative_synchronize"
_FREE: Final = nullcontext()


class Synchronous:
    """The option, and the device on which ops run."""

    def __init__(self) -> None:
        self._sync = executor()._executor.sync
        #: The earlier value of the option; None while opscope has not set it.
        self._before: bool | None = None
        self._waits = False
        self._listening = False
        self._turn = threading.RLock()

    def begin(self) -> None:
        """Make ops run synchronously, because something listens from now on."""
        self._listening = True
        self.device()

    def end(self) -> None:
        """Restore the option, because nothing listens any longer."""
        self._listening = self._waits = False
        self._restore()

    def device(self) -> str | None:
        """Return the device that ops run on. The program may choose it at any time."""
        target = str(context.get_context("device_target"))
        waits = self._listening and target == "CPU"
        if waits != self._waits:
            self._waits = waits
            if waits and not context.get_context(_OPTION):
                self._before = False
                self._set(True)
            elif not waits:
                self._restore()
        return device_name(target, int(context.get_context("device_id") or 0))

    def guard(self) -> AbstractContextManager[Any]:
        """Return the context in which an op runs and is waited for."""
        return self._turn if self._waits else _FREE

    def wait(self) -> None:
        """Wait until this thread's ops have run, if ops are to be synchronous."""
        if self._waits:
            self._sync()

    def _restore(self) -> None:
        if self._before is not None:
            self._before = None
            self._set(False)

    def _set(self, value: bool) -> None:
        self._sync()  # the queue continues as before
        parameters: Any = context.ms_ctx_param
        context._context().set_param(parameters.pynative_synchronize, value)
