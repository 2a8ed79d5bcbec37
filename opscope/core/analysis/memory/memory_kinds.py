"""The kind of each block of memory: parameter, gradient, optimizer state, activation, temporary or input.

A kind is given only if facts in the trace prove it: the pass and the op that allocated the block, when it was
released, and the sizes of gradients. Every kind has a reason; without a proof it is unknown.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.memory.memory_passes import (
    BACKWARD,
    FORWARD,
    INPUT,
    OPTIMIZER,
    Passes,
    passes,
)
from opscope.core.analysis.ops.ops import Ops
from opscope.core.schema import DIRECTIONS, TensorSpec, leaves
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints

PARAMETER, GRADIENT, STATE = "parameter", "gradient", "optimizer state"
ACTIVATION, TEMPORARY, INPUTS, UNKNOWN = "activation", "temporary", "input", "unknown"
#: The kind and the reason of each rule, in the order in which the rules are tried; a code is a place here.
RULES: Final = (
    (TEMPORARY, "released before the op that allocated it ended"),
    (TEMPORARY, "allocated and released in one optimizer step"),
    (STATE, "allocated in an optimizer step, kept to the next or to the end"),
    (TEMPORARY, "allocated and released in one backward pass"),
    (
        GRADIENT,
        "allocated in a backward pass, kept for the optimizer, released before the next one",
    ),
    (GRADIENT, "allocated in a backward pass and kept, of a size that the pass accumulated"),
    (GRADIENT, "allocated in a backward pass, kept for the optimizer, of a size that it works on"),
    (ACTIVATION, "allocated in a forward pass, released in a backward pass"),
    (
        ACTIVATION,
        "allocated in a forward pass, kept for the backward pass, released before the next",
    ),
    (ACTIVATION, "allocated in a forward pass, released before any backward pass"),
    (ACTIVATION, "allocated in a layer, released later; the process has no backward pass"),
    (INPUTS, "allocated while the input was prepared"),
    (PARAMETER, "allocated before the first pass, kept over all; as many of its size as gradients"),
    (PARAMETER, "allocated before the first pass, kept over all; a parameter was made of it"),
    (UNKNOWN, "the process shows no forward or backward pass and no optimizer step"),
    (UNKNOWN, "allocated by a thread that takes no part in the passes"),
    (
        UNKNOWN,
        "allocated before the first pass, kept: no gradient of its size, or more blocks of it",
    ),
    (UNKNOWN, "allocated before the first pass, released before the last"),
    (UNKNOWN, "allocated outside the passes"),
    (UNKNOWN, "allocated in a forward pass, kept over later ones or to the end"),
    (UNKNOWN, "allocated in a backward pass, kept; nothing shows what for"),
    (UNKNOWN, "allocated in an optimizer step, released before the next"),
    (UNKNOWN, "allocated before the trace"),
    (UNKNOWN, "the trace has no addresses, or no number of the device"),
)
(
    _IN_OP, _IN_STEP, _STATE, _IN_BACKWARD, _GRADIENT, _ACCUMULATED, _WORKED_ON, _TO_BACKWARD,
    _FOR_BACKWARD, _IN_FORWARD, _IN_LAYER, _INPUT, _PARAMETER, _MADE_PARAMETER, NO_PASS, _THREAD, _NO_SIZE,
    _EARLY, _OUTSIDE, _LONG_FORWARD, _LONG_BACKWARD, _LONG_STEP, BEFORE, UNTOLD,
) = range(len(RULES))  # fmt: skip
_NOT_YET: Final = NONE
_NEVER: Final = int(np.iinfo(np.int64).max)
_ACCUMULATE: Final = "torch::autograd::AccumulateGrad"
#: PyTorch's CUDA allocator rounds sizes up to multiples of this; some sources record the requested size.
_ROUNDED: Final = 512
#: The op by which a parameter takes over the tensor from which it is made.
_DETACH: Final = ("aten::detach", "detach")
#: Separator in the names of library ops, as in aten::mm: PyTorch's modules and user functions have none.
_LIBRARY: Final = "::"


def block_rules(ops: Ops, table: pl.DataFrame, op_rows: Ints, layered: NDArray[np.bool_]) -> Ints:
    """Return for each block (``memory_blocks.blocks``) the rule that proves its kind, as a place in RULES.

    ``op_rows``: the innermost op open when each was allocated, -1 for none; ``layered``: whether this op has
    a layer.
    """
    rules = np.full(len(table), _NOT_YET, np.int64)
    untold = table["device"].is_null() | table["address"].is_null()
    rules[untold.to_numpy()] = UNTOLD
    rules[table["row"].is_null().to_numpy() & (rules == _NOT_YET)] = BEFORE
    start = table["start"].fill_null(0).to_numpy()
    end = table["end"].fill_null(_NEVER).to_numpy()
    process = table["process"].fill_null(NONE).to_numpy()
    ended = _end_of_op(ops, op_rows)
    rules[(rules == _NOT_YET) & (end < ended)] = _IN_OP
    direction = np.full(len(table), NONE, np.int64)
    direction[op_rows >= 0] = ops.direction(op_rows[op_rows >= 0])
    backward = direction == DIRECTIONS.index("backward")
    for number, here in passes(ops):
        mine = np.flatnonzero((process == number) & (rules == _NOT_YET))
        if len(mine):
            rules_of_process = _Process(ops, number, here, table[mine], op_rows[mine])
            rules[mine] = rules_of_process.rules(
                start[mine], end[mine], backward[mine], layered[mine]
            )
    rest = rules == _NOT_YET
    rules[rest] = np.where(layered[rest] & (end[rest] < _NEVER), _IN_LAYER, NO_PASS)
    return rules


def _end_of_op(ops: Ops, rows: Ints) -> Ints:
    """Return when (ns) the outermost library op around each op row ends, else the op itself; 0 for none."""
    meaning, parent = ops.attribution.meaning, ops.attribution.parent
    library = np.array([_LIBRARY in text.split("(")[0] for text in meaning.texts], bool)
    named = library[meaning.reading]
    # an op whose parent is not a library op ends the climb through library ops
    top = ~named | (parent < 0) | ~named[np.maximum(parent, 0)]
    op_of_row = ops.attribution.climb(rows, top)
    return at(ops.attribution.trace["ranges"]["end"].to_numpy(), op_of_row, 0)


class _Process:
    """The blocks of one process whose kind is wanted, and the passes of the process."""

    def __init__(
        self, ops: Ops, number: int, ran: Passes, table: pl.DataFrame, op_rows: Ints
    ) -> None:
        self._ops, self._number, self._ran = ops, number, ran
        self._op_rows = op_rows
        self._device = table["device"].fill_null(NONE).to_numpy()
        size = table["bytes"].to_numpy()
        #: sizes of a GPU are compared as the allocator rounds them
        self._size = np.where(self._device >= 0, _round(size), size)
        self._thread = table["thread"]

    def rules(
        self, start: Ints, end: Ints, backward: NDArray[np.bool_], layered: NDArray[np.bool_]
    ) -> Ints:
        """Return the rule of each block."""
        ran = self._ran
        begin_pass, end_pass = ran.at(start), ran.at(end)
        kind = at(ran.kind, begin_pass)
        begins, steps = ran.starts(BACKWARD), ran.starts(OPTIMIZER)
        # the first gradient, which starts a backward pass, is made just before it
        coming = np.searchsorted(begins, start, side="left")
        early = backward & np.isin(kind, (NONE, FORWARD)) & (coming < len(begins))
        following = np.append(np.flatnonzero(ran.kind == BACKWARD), NONE)[coming]
        begin_pass = np.where(early, following, begin_pass)
        kind = np.where(early, BACKWARD, kind)
        rules = np.full(len(start), _OUTSIDE, np.int64)
        same = (begin_pass >= 0) & (end_pass == begin_pass)
        next_step = _after(steps, at(ran.end, begin_pass, 0))
        is_kept = end > next_step  # a parameter is kept until the optimizer's next step has begun
        self._group = np.where(next_step < _NEVER, next_step, NONE - begin_pass)
        rules[kind == INPUT] = _INPUT
        of_step = kind == OPTIMIZER
        kept = is_kept | ((next_step == _NEVER) & (end == _NEVER))
        rules[of_step] = np.where(same, _IN_STEP, np.where(kept, _STATE, _LONG_STEP))[of_step]
        of_backward = kind == BACKWARD
        used = is_kept & (end < _after(begins, next_step))
        rules[of_backward] = np.where(
            same, _IN_BACKWARD, np.where(used, _GRADIENT, _LONG_BACKWARD)
        )[of_backward]
        self._sized_gradients(rules, begin_pass, is_kept)
        forward = (kind == FORWARD) | ((kind == NONE) & layered & (not (ran.kind == FORWARD).any()))
        rules[forward] = self._forward(start, end, end_pass)[forward]
        foreign = ~self._of_passes()
        rules[foreign] = _THREAD
        first = int(ran.start.min())
        before = (start < first) & (kind == NONE) & ~foreign & ~early
        rules[before] = _EARLY
        last = int(ran.end.max())
        self._parameters(rules, np.flatnonzero(before & (end > last)))
        return rules

    def _of_passes(self) -> NDArray[np.bool_]:
        """Return whether each block was allocated by a thread of the passes, or by an unknown thread."""
        if not self._ran.threads:
            return np.ones(len(self._size), bool)
        is_of_pass: NDArray[np.bool_] = (
            self._thread.is_in(list(self._ran.threads)).fill_null(True).to_numpy()
        )
        return is_of_pass

    def _forward(self, start: Ints, end: Ints, end_pass: Ints) -> Ints:
        begins = self._ran.starts(BACKWARD)
        during = at(self._ran.kind, end_pass) == BACKWARD
        first = _after(begins, start)
        second = _after(begins, first)
        released = end < _NEVER
        return np.select(
            [during, released & (end <= first), released & (end < second)],
            [_TO_BACKWARD, _IN_FORWARD, _FOR_BACKWARD],
            _LONG_FORWARD,
        )

    def _sized_gradients(self, rules: Ints, begin_pass: Ints, is_held: NDArray[np.bool_]) -> None:
        """Mark as gradients the blocks that outlive a backward pass and have a size that ops name for
        gradients."""
        kept = np.flatnonzero(rules == _LONG_BACKWARD)
        if not len(kept):
            return
        by_pass, worked_on = self._accumulate(), self._optimized()
        key = np.stack(
            [begin_pass[kept], is_held[kept], self._device[kept], self._size[kept]], axis=1
        )
        distinct, index = np.unique(key, axis=0, return_inverse=True)
        rules_of_keys = np.full(len(distinct), _LONG_BACKWARD, np.int64)
        example = np.zeros(len(distinct), np.int64)
        example[index.reshape(-1)] = kept
        for number, (pass_number, for_optimizer, _, _) in enumerate(distinct.tolist()):
            block = int(example[number])
            if self._is_one_of(block, by_pass.get(pass_number, frozenset())):
                rules_of_keys[number] = _ACCUMULATED
            elif for_optimizer and self._is_one_of(block, worked_on):
                rules_of_keys[number] = _WORKED_ON
        rules[kept] = rules_of_keys[index.reshape(-1)]

    def _accumulate(self) -> dict[int, frozenset[int]]:
        """Return the sizes of the gradients that each backward pass accumulated, if shapes are recorded."""
        meaning = self._ops.attribution.meaning
        sizes = [
            _sizes(reading.call.inputs)
            if reading.call is not None and reading.call.name == _ACCUMULATE
            else frozenset()
            for reading in meaning.readings
        ]
        rows = self._rows(np.array([bool(size) for size in sizes], bool))
        if not len(rows):
            return {}
        start = self._ops.attribution.trace["ranges"]["start"].gather(rows).to_numpy()
        pass_index, code = self._ran.at(start), meaning.reading[rows]
        sizes_by_pass: dict[int, frozenset[int]] = {}
        for pass_number, reading in np.unique(
            np.stack([pass_index, code], axis=1), axis=0
        ).tolist():
            sizes_by_pass[pass_number] = (
                sizes_by_pass.get(pass_number, frozenset()) | sizes[reading]
            )
        return sizes_by_pass

    def _optimized(self) -> frozenset[int]:
        """Return the sizes of the tensors that the process's optimizer ops take, if recorded."""
        readings = self._ops.attribution.meaning.readings
        sizes = [
            frozenset() if reading.call is None else _sizes(reading.call.inputs)
            for reading in readings
        ]
        rows = self._rows(np.array([bool(size) for size in sizes], bool))
        rows = rows[self._ops.direction(rows) == DIRECTIONS.index("optimizer")]
        codes = np.unique(self._ops.attribution.meaning.reading[rows]).tolist()
        return frozenset().union(*(sizes[code] for code in codes))

    def _rows(self, wanted: NDArray[np.bool_]) -> Ints:
        """Return the op rows of the process whose reading is ``wanted``."""
        rows = self._ops.rows
        rows = rows[wanted[self._ops.attribution.meaning.reading[rows]]]
        process = self._ops.attribution.trace["ranges"]["process"].gather(rows).fill_null(NONE)
        mine: Ints = rows[process.to_numpy() == self._number]
        return mine

    def _parameters(self, rules: Ints, kept: Ints) -> None:
        """Mark as parameters, among the blocks ``kept`` over all passes, as many blocks of each size as there
        are gradients of it.

        All gradients of one step exist at the same time, so there are as many parameters of a size as one
        backward pass made gradients of it. If there are fewer blocks of a size, not all parameters were
        allocated in the trace, and other blocks may only look like parameters.
        """
        rules[kept] = _NO_SIZE
        wanted = self._gradients(rules)
        if not wanted or not len(kept):
            return
        key = np.stack([self._device[kept], self._size[kept]], axis=1)
        distinct, index = np.unique(key, axis=0, return_inverse=True)
        index = index.reshape(-1)
        there = [(device, size) for device, size in distinct.tolist()]
        counts = dict(zip(there, np.bincount(index).tolist(), strict=True))
        if any(counts.get(size, 0) < count for size, count in wanted.items()):
            return
        makers = self._made_parameters(kept)
        for number, one in enumerate(there):
            count = wanted.get(one, 0)
            those = kept[index == number]
            if count == len(those):
                rules[those] = _PARAMETER
            elif count and int(makers[index == number].sum()) == count:
                rules[those[makers[index == number]]] = _MADE_PARAMETER

    def _gradients(self, rules: Ints) -> dict[tuple[int, int], int]:
        """Return the most gradients of each device and size that existed for one optimizer step."""
        rows = np.flatnonzero(np.isin(rules, (_GRADIENT, _ACCUMULATED, _WORKED_ON)))
        key = np.stack([self._group[rows], self._device[rows], self._size[rows]], axis=1)
        largest: dict[tuple[int, int], int] = {}
        for (_, device, size), count in zip(*_count(key), strict=True):
            largest[device, size] = max(count, largest.get((device, size), 0))
        return largest

    def _made_parameters(self, kept: Ints) -> NDArray[np.bool_]:
        """Return whether a tensor of each block's size was detached right after the op that allocated it.

        That is how ``torch.nn.Parameter`` takes a tensor over.
        """
        meaning, trace = self._ops.attribution.meaning, self._ops.attribution.trace
        rows = self._rows(np.ones(len(meaning.readings), bool))
        rows = rows[self._ops.attribution.parent[rows] < 0]
        start, thread = (trace["ranges"][name].gather(rows) for name in ("start", "thread"))
        rows = rows[np.lexsort((start.to_numpy(), thread.fill_null(NONE).to_numpy()))]
        index = np.full(len(meaning.reading) + 1, len(rows), np.int64)
        index[rows] = np.arange(len(rows))
        every = np.ones(len(meaning.reading), bool)
        every[self._ops.attribution.parent >= 0] = False
        top = self._ops.attribution.climb(self._op_rows[kept], every)
        following = np.append(rows, [NONE, NONE])[index[top] + 1]
        sizes = [
            _sizes(reading.call.inputs)
            if reading.call is not None and reading.call.name in _DETACH
            else frozenset()
            for reading in meaning.readings
        ]
        code = at(meaning.reading, following).tolist()
        taken = zip(kept.tolist(), code, strict=True)
        return np.array(
            [reading >= 0 and self._is_one_of(block, sizes[reading]) for block, reading in taken],
            bool,
        )

    def _is_one_of(self, block: int, sizes: frozenset[int]) -> bool:
        """Return whether the block has one of the sizes of tensors, as its device's allocator rounds them."""
        size = int(self._size[block])
        return size in sizes or (
            self._device[block] >= 0 and any(_rounded_one(one) == size for one in sizes)
        )


def _count(key: NDArray[np.int64]) -> tuple[list[list[int]], list[int]]:
    """Return the distinct rows and how often each occurs."""
    distinct, counts = np.unique(key, axis=0, return_counts=True)
    return distinct.tolist(), counts.tolist()


def _after(times: Ints, time: Ints) -> Ints:
    """Return for each time the first of ``times`` after it (ns); the largest integer if there is none."""
    later: Ints = np.append(times, _NEVER)[np.searchsorted(times, time, side="right")]
    return later


def _round(size: Ints) -> Ints:
    return -(-size // _ROUNDED) * _ROUNDED


def _rounded_one(size: int) -> int:
    return -(-size // _ROUNDED) * _ROUNDED


def _sizes(args: tuple[object, ...]) -> frozenset[int]:
    """Return the sizes (bytes) of the tensors among an op's arguments, if shapes and dtypes are recorded."""
    sizes = (leaf.nbytes for leaf in leaves(args) if isinstance(leaf, TensorSpec))  # type: ignore[arg-type]
    return frozenset(size for size in sizes if size)
