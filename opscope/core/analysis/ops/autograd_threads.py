"""Find the threads of autograd's engine, on which all work is backward work."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import pieces
from opscope.core.tables.intervals import NONE, Ints

#: Names of PyTorch's autograd nodes. (Threads of TensorFlow's pool run both forward and backward ops.)
_NODE: Final = re.compile(r"Backward(?:[0-9]+)?\Z|autograd::")
_BACKWARD: Final = DIRECTIONS.index("backward")


class AutogradThreads:
    """The threads on which only autograd's engine works.

    Work of the engine between its nodes there, such as adding up gradients, is backward work, although its
    text has no direction. Such a thread has backward nodes; outside them it has no op with a sequence number
    (autograd numbers the ops that it may have to differentiate) and no op whose text has another direction.
    (``emit_nvtx`` writes 0, the number of the first op, if a thread has made none yet.)
    """

    def __init__(self, attribution: Attribution, codes: NDArray[np.int8]) -> None:
        ranges = attribution.trace["ranges"]
        self._process, self._thread = (
            ranges[name].fill_null(NONE) for name in ("process", "thread")
        )
        seq = attribution.meaning.seq
        meaning = attribution.meaning
        is_node = meaning.each(lambda r: r.call is not None and bool(_NODE.search(r.call.name)))
        first = False
        self._seq = seq
        self.lanes: set[tuple[int, int]] = set()
        for part in pieces(len(codes)):
            back = (codes[part] == _BACKWARD) & attribution.is_op[part]
            nodes = part.start + np.flatnonzero(back & is_node[meaning.reading[part]])
            if len(nodes):
                first |= bool((seq.gather(nodes) == 0).any())
                self.lanes |= self._of(nodes)
        self._least = 0 if first else 1
        if self.lanes:
            others = [DIRECTIONS.index(name) for name in ("forward", "optimizer", "input")]
            for part in pieces(len(codes)):
                self.lanes -= self._of(part.start + np.flatnonzero(np.isin(codes[part], others)))

    def without(self, rows: Ints) -> None:
        """Remove the threads of those op ``rows`` that have a sequence number but no direction."""
        if self.lanes and len(rows):
            numbered = self._seq.at_least(self._least, rows)
            self.lanes -= self._of(rows[numbered])

    def has(self, rows: Ints) -> NDArray[np.bool_]:
        """Return whether each row is on a thread of autograd's engine."""
        process, thread = self._places(rows)
        on_lane = np.isin(thread, [thread for _, thread in self.lanes])
        mine = np.flatnonzero(on_lane)
        for number, on in np.unique(np.stack((process[mine], thread[mine]), 1), axis=0).tolist():
            if (number, on) not in self.lanes:
                on_lane &= (process != number) | (thread != on)
        return on_lane

    def _of(self, rows: Ints) -> set[tuple[int, int]]:
        lanes = pl.DataFrame(dict(zip(("process", "thread"), self._places(rows), strict=True)))
        return set(lanes.unique().rows())

    def _places(self, rows: Ints) -> tuple[Ints, Ints]:
        return self._process.gather(rows).to_numpy(), self._thread.gather(rows).to_numpy()
