"""Mark as backward the ops of a gradient tape that differentiate no single op: sums, custom gradients.

TensorFlow traverses a tape backwards in one call. The ops that the thread runs or adds to a graph during
the call are backward work, except while a tape that was started within the call records: then activations
are recomputed, by forward ops.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, tape
from tensorflow.python.framework import ops

from opscope.adapters.shared.patch import Patches

from .eager import EagerOps
from .graphs import Graphs


class _Thread(threading.local):
    #: Number of nested calls that traverse tapes.
    depth = 0
    #: Number of recording tapes that were started in the innermost of these calls.
    recording = 0
    #: The graph that receives backward nodes, and its version when that began.
    grows: tuple[Any, int] | None = None


class Tapes:
    """Reports to ``eager`` and ``graphs`` which ops are backward work."""

    def __init__(self, eager: EagerOps, graphs: Graphs, failed: Callable[[str], None]) -> None:
        self._eager = eager
        self._graphs = graphs
        self._failed = failed
        self._thread = _Thread()

    def watch(self, patches: Patches) -> None:
        """Hook the call that traverses a tape, and the start and end of tapes."""
        patches.wrap(pywrap_tfe, "TFE_Py_TapeGradient", self._gradient)
        for name, change in (("push_new_tape", 1), ("push_tape", 1), ("pop_tape", -1)):
            patches.wrap(tape, name, functools.partial(self._counted, change))

    def _gradient(self, original: Any) -> Any:
        mine = self._thread

        @functools.wraps(original)
        def TFE_Py_TapeGradient(*args: Any) -> Any:
            depth, recording = mine.depth, mine.recording
            self._now(depth + 1, 0)
            try:
                return original(*args)
            finally:
                self._now(depth, recording)

        return TFE_Py_TapeGradient

    def _counted(self, count: int, original: Any) -> Any:
        mine = self._thread

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if mine.depth:
                self._now(mine.depth, mine.recording + count)
            return original(*args, **kwargs)

        return counted

    def _now(self, depth: int, recording: int) -> None:
        """Set this thread's number of nested calls and of recording tapes."""
        mine = self._thread
        try:
            if mine.grows is not None:
                graph, before = mine.grows
                self._graphs.taped(graph, before, graph.version)
            mine.depth, mine.recording, mine.grows = depth, recording, None
            # a tape that was started before the call may pause within it: then recording is below 0
            backward = depth > 0 and recording <= 0
            self._eager.set_tape_backward(backward)
            if backward and not context.executing_eagerly():
                graph = ops.get_default_graph()
                mine.grows = graph, graph.version
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the backward ops of a gradient tape could not be recognised")
