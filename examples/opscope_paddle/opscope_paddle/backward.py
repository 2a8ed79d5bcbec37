"""The backward pass: a range for each gradient node, from a hook on the result of its forward op.

Python does not call the ops of the backward pass. Paddle runs the hooks of a tensor's gradient when it
begins to run the node of the op that made the tensor, so a hook begins that node's range. The next node, or
the end of the pass, ends it. One thread runs all nodes of a pass.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared


class _Pass(threading.local):
    """This thread's backward passes: how many are open, and whether the innermost has a range open."""

    def __init__(self) -> None:
        self.depth = 0
        self.pushed = False


class Backward:
    """The hooks of the functions that run a backward pass, and of the gradients."""

    def __init__(self, emitter: Emitter, failed: Callable[[str], None]) -> None:
        self._emitter = emitter
        self._failed = failed
        self._pass = _Pass()

    def around(self, original: Any) -> Any:
        """Return the replacement of a function that runs a backward pass."""

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._emitter.active:
                return original(*args, **kwargs)
            state = self._pass
            outer, state.pushed = state.pushed, False
            state.depth += 1
            try:
                with session.phase("backward"):
                    try:
                        return original(*args, **kwargs)
                    finally:
                        self._end(state)
            finally:
                state.depth -= 1
                state.pushed = outer

        return run

    def watch(self, tensor: Any, range_: Prepared, seq: int, thread: int) -> None:
        """Begin the range of the node that made ``tensor`` when a backward pass reaches it."""

        def hook(_gradient: Any) -> None:  # None: the gradient stays as it is
            state = self._pass
            if not state.depth or not self._emitter.active:
                return
            try:
                self._end(state)
                self._emitter.push(range_, seq, thread)
                state.pushed = True
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a gradient's op could not be recorded")

        tensor.register_hook(hook)

    def _end(self, state: _Pass) -> None:
        if state.pushed:
            state.pushed = False
            self._emitter.pop()
