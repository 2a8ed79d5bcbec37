"""The threads that are autograd's own, on which all is backward work."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.intervals import NONE, Ints

#: What PyTorch calls its nodes. Threads of TensorFlow's pool take whatever is next, forward or backward.
_NODE: Final = re.compile(r"Backward(?:[0-9]+)?\Z|autograd::")
_BACKWARD: Final = DIRECTIONS.index("backward")


class AutogradThreads:
    """The threads on which autograd's engine alone works: what it does between its nodes, such as adding
    up gradients, is backward work though nothing says so.

    Such a thread has backward nodes, and outside them no op that autograd has numbered, as it numbers
    what it may have to differentiate, nor one that says it is another direction's. (``emit_nvtx`` writes
    0, the number of the first, where a thread has made none yet.)
    """

    def __init__(self, attribution: Attribution, codes: NDArray[np.int8]) -> None:
        ranges = attribution.trace["ranges"]
        self._process, self._thread = (
            ranges[name].fill_null(NONE) for name in ("process", "thread")
        )
        seq = attribution.meaning.seq
        meaning = attribution.meaning
        names = [one.call.name if one.call is not None else "" for one in meaning.readings]
        is_node = np.array([_NODE.search(name) is not None for name in names], bool)
        nodes = np.flatnonzero((codes == _BACKWARD) & attribution.is_op & is_node[meaning.reading])
        first = bool((seq.gather(nodes) == 0).any()) if len(nodes) else False
        self._numbered = (seq >= (0 if first else 1)).fill_null(False)
        self.lanes: set[tuple[int, int]] = self._of(nodes)
        if self.lanes:
            said = [DIRECTIONS.index(name) for name in ("forward", "optimizer", "input")]
            self.lanes -= self._of(np.flatnonzero(np.isin(codes, said)))

    def without(self, rows: Ints) -> None:
        """Hear of ops that nothing tells the direction of: a thread on which one is numbered is not one."""
        if self.lanes and len(rows):
            numbered = self._numbered.gather(rows).to_numpy()
            self.lanes -= self._of(rows[numbered])

    def has(self, rows: Ints) -> NDArray[np.bool_]:
        """Whether each row is on such a thread."""
        process, thread = self._places(rows)
        found = np.isin(thread, [thread for _, thread in self.lanes])
        mine = np.flatnonzero(found)
        for number, on in np.unique(np.stack((process[mine], thread[mine]), 1), axis=0).tolist():
            if (number, on) not in self.lanes:
                found &= (process != number) | (thread != on)
        return found

    def _of(self, rows: Ints) -> set[tuple[int, int]]:
        lanes = pl.DataFrame(dict(zip(("process", "thread"), self._places(rows), strict=True)))
        return set(lanes.unique().rows())

    def _places(self, rows: Ints) -> tuple[Ints, Ints]:
        return self._process.gather(rows).to_numpy(), self._thread.gather(rows).to_numpy()
