"""The state of each thread: its open ranges, its past forward ops, and the op that it is differentiating."""

from __future__ import annotations

import itertools
import threading
from typing import Any, Final

from opscope.adapters.shared.source import NOWHERE, Source
from opscope.core.capture.emit import Prepared
from opscope.core.schema import OpCall

#: Forward ops that a thread remembers, to pair them with the nodes of its autograd graph.
MAX_MADE: Final = 131_072


class Entry:
    """The remembered data of a call that was seen before."""

    __slots__ = (
        "call",
        "category",
        "dtype",
        "known",
        "named",
        "opaque",
        "prepared",
        "results",
        "shape",
        "source",
    )

    def __init__(
        self, call: OpCall, category: str, prepared: Prepared, source: Source, opaque: bool
    ) -> None:
        self.call = call
        self.category = category
        self.prepared = prepared
        self.source = source
        #: Whether MindSpore runs the op through a Primitive: no hook sees the ops of its gradient.
        self.opaque = opaque
        #: Whether ``call`` has the op's own name; otherwise it has the name of the called function.
        self.named = True
        #: Whether ``prepared`` has the outputs.
        self.known = False
        #: Shape, and id of the dtype, of the result if it is a tensor; else of the first tensor in it.
        self.shape: Any = None
        self.dtype: Any = None
        #: The complete range for each key of a result, if results differ from call to call.
        self.results: dict[Any, Prepared] | None = None


class State:
    """The state of a thread. ``number`` is the 1-based forward thread of range payloads."""

    __slots__ = (
        "anchors",
        "around",
        "backward",
        "category",
        "entered",
        "gradient",
        "graphs",
        "made",
        "nodes",
        "number",
        "open",
        "optimizing",
        "paused",
        "results",
        "run",
        "seen",
        "seq",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.seq = 0
        #: Whether our dispatch mode is on this thread's stack.
        self.entered = False
        self.reset(-1)

    def reset(self, run: int) -> None:
        """Forget the open ranges: a new capture has none that began before it."""
        self.run = run
        #: This thread's open ranges, outermost first: ids of cells, and names of phases.
        self.open: list[int | str] = []
        #: Nested backward passes, and those that pause while a recomputation runs.
        self.backward = 0
        self.paused: list[int] = []
        self.optimizing = 0
        #: The direction of this thread's next ops, derived from the three fields above; "" : to be
        #: determined.
        self.category = "forward"
        #: The nodes whose gradients are running, innermost last: sequence number, forward thread, source.
        self.nodes: list[tuple[int, int, Source]] = []
        #: Number of ops that ran on this thread.
        self.seen = 0
        #: Forward ops since the outermost autograd graph began: sequence number, entry.
        self.made: list[tuple[int, Entry]] = []
        #: Sequence number of an autograd node, where it could be read → the position of its op in ``made``.
        self.anchors: dict[int, int] = {}
        #: Both for version 2.7. ``results``: the results of ops in the autograd graph, by id. ``gradient``:
        #: of the running gradient, the sequence number of its op, and the range with its outputs.
        self.results: dict[int, Any] = {}
        self.gradient: tuple[int, Prepared | None] | None = None
        #: The objects whose autograd graphs are being built, outermost first.
        self.graphs: list[int] = []
        #: The number of nested runs of compiled graphs.
        self.around = 0

    def turned(self) -> None:
        """Determine the direction again after ``backward`` or ``optimizing`` has changed."""
        self.category = (
            "backward" if self.backward else "optimizer" if self.optimizing else "forward"
        )

    @property
    def node(self) -> tuple[int, int, Source]:
        """The node whose gradient runs: sequence number (-1: not known), forward thread, source."""
        return self.nodes[-1] if self.nodes else (-1, 0, NOWHERE)


class Threads:
    """The states of all threads."""

    def __init__(self) -> None:
        self.local = threading.local()
        self._numbers = itertools.count(1)
        #: Counts the starts of a capture; ``current`` resets a state from before the last one.
        self.run = 0

    def current(self) -> State:
        """Return the state of the calling thread."""
        state: State | None = getattr(self.local, "state", None)
        if state is None:
            state = self.local.state = State(next(self._numbers))
        if state.run != self.run:
            state.reset(self.run)
        return state
