"""The common part of the hooks of MindSpore's executors: the emitter, the threads, the ops, and the steps."""

from __future__ import annotations

from collections.abc import Callable

from opscope.core.capture.emit import Emitter

from .ops import Ops
from .state import Threads
from .steps import Steps


class ExecutorHooks:
    """Hooks with the switch ``on``, which is set while something listens.

    Without ``steps``, no steps are counted.
    """

    def __init__(
        self,
        emitter: Emitter,
        threads: Threads,
        ops: Ops,
        steps: Steps | None,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._threads = threads
        self._ops = ops
        self._steps = steps
        self._failed = failed
        self.on = False
