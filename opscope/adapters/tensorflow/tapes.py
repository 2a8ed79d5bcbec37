"""What a gradient tape runs that differentiates no one op: sums of gradients, custom gradients.

TensorFlow goes back over a tape in one call. What its thread runs or puts into a graph meanwhile is
backward work, except while a tape that was begun within the call records: then activations are computed
again, by forward ops.
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
    #: Calls that go back over tapes, one within another.
    depth = 0
    #: Tapes begun within the innermost one that record.
    recording = 0
    #: The graph that gets backward nodes, and its size when it began to.
    grows: tuple[Any, int] | None = None


class Tapes:
    """Tells ``eager`` and ``graphs`` what is backward work."""

    def __init__(self, eager: EagerOps, graphs: Graphs, failed: Callable[[str], None]) -> None:
        self._eager = eager
        self._graphs = graphs
        self._failed = failed
        self._thread = _Thread()

    def watch(self, patches: Patches) -> None:
        """Hook the call that goes back over a tape, and the beginning and end of tapes."""
        patches.wrap(pywrap_tfe, "TFE_Py_TapeGradient", self._gradient)
        for name, many in (("push_new_tape", 1), ("push_tape", 1), ("pop_tape", -1)):
            patches.wrap(tape, name, functools.partial(self._counted, many))

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

    def _counted(self, many: int, original: Any) -> Any:
        mine = self._thread

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if mine.depth:
                self._now(mine.depth, mine.recording + many)
            return original(*args, **kwargs)

        return counted

    def _now(self, depth: int, recording: int) -> None:
        """From here on this thread is that deep in calls, and so many tapes record."""
        mine = self._thread
        try:
            if mine.grows is not None:
                graph, before = mine.grows
                self._graphs.taped(graph, before, graph.version)
            mine.depth, mine.recording, mine.grows = depth, recording, None
            # one that was begun before may pause within: then there are fewer than none
            backward = depth > 0 and recording <= 0
            self._eager.goes_back(backward)
            if backward and not context.executing_eagerly():
                graph = ops.get_default_graph()
                mine.grows = graph, graph.version
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("what a gradient tape runs could not be told")
