"""Find the call that PyProf names for each kernel: the outermost Python call around the launch, or the
forward's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.kernels import called
from opscope.core.analysis.ops.ops import Ops
from opscope.core.attribution.attribute import Attribution
from opscope.core.pyprof import names, sequence
from opscope.core.pyprof.params import GATES
from opscope.core.tables.columns import at, pairs
from opscope.core.tables.intervals import NONE, Ints

Flags = NDArray[np.bool_]
#: The domain of functions that the user gave to ``opscope.wrap``.
_WRAPPED: Final = "opscope.wrap"
#: Adds a gradient to the parameter's gradient. PyProf counts only nodes named ``…Backward`` as backward.
_ACCUMULATE: Final = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True)
class Calls:
    """PyProf's facts about each kernel, in the order in which the kernels began.

    ``order``: the kernel's row in the trace. ``op``: its op's row of ``ranges`` (-1: none). ``subject``: the
    row of the call that PyProf names. ``marker``: whether that is a Python call. ``node``: whether it is an
    autograd node, because no kernel of its forward ran. ``forward``: the position of the forward kernel that
    gave a backward kernel its call (-1: none). ``backward``, ``seq`` (-1: none), ``altseq``, ``sub``:
    PyProf's columns.
    """

    order: Ints
    op: Ints
    subject: Ints
    marker: Flags
    node: Flags
    forward: Ints
    backward: Flags
    seq: Ints
    altseq: pl.Series
    sub: Ints


@dataclass(frozen=True, slots=True)
class _Around:
    """The rows around each distinct op row: the outermost and the innermost Python call, the autograd node,
    and the op that has the shapes and the cost (-1: none)."""

    outer: Ints
    inner: Ints
    node: Ints
    counted: Ints

    @classmethod
    def of(cls, ops: Ops, rows: Ints) -> _Around:
        attribution = ops.attribution
        python = _python_calls(attribution)
        backward = attribution.meaning.each(
            lambda reading: (
                reading.direction == "backward"
                and (reading.call is None or reading.call.name != _ACCUMULATE)
            )
        )
        counted = np.full(len(rows), NONE, np.int64)
        counted[rows >= 0] = ops.counted_ops(rows[rows >= 0])
        return cls(
            attribution.climb(rows, _outermost(attribution, python)),
            attribution.climb(rows, python),
            attribution.climb(rows, attribution.is_op & backward[attribution.meaning.reading]),
            counted,
        )


def calls(ops: Ops) -> Calls:
    """Return the calls of all kernels of the trace."""
    attribution = ops.attribution
    launched = attribution.kernels
    order = np.argsort(attribution.trace["kernels"]["start"].to_numpy(), kind="stable")
    op = launched.op[order].astype(np.int64)
    rows, of = np.unique(op, return_inverse=True)
    of = of.reshape(-1)
    around = _Around.of(ops, rows)
    backward = (around.node >= 0)[of]
    process, thread, _ = called(attribution.trace["calls"], launched.call[order])
    lane = pairs(process, thread)[2].astype(np.int64)
    numbers = sequence.numbers_around(attribution, rows)
    now = sequence.current(numbers, of, backward, lane)
    own = sequence.is_own(numbers, of, now)
    name, cell = _names(attribution, rows, around)
    numbered = numbers.counts[of] > 0
    sub = sequence.repeats(now, name[of], lane, numbered, cell[of])

    marked = (around.outer >= 0)[of]
    forward = np.full(len(op), NONE, np.int64)
    wanting = np.flatnonzero(backward & ~marked & (now >= 0))
    if len(wanting):
        key = _forward_lanes(ops, rows)[of]
        given = np.where(own, now, NONE)
        others = sequence.alternatives(numbers, of, now)
        forward[wanting] = _latest(
            (key, given, ~backward), others, (key[wanting], now[wanting], wanting)
        )
    subject, node = _subjects(ops, rows, around, of, backward, forward)
    marker = np.where(forward >= 0, at(marked, forward, False), marked)
    seq = np.where(own, now, NONE)
    altseq = sequence.others(numbers, of, now)
    return Calls(order, op, subject, marker, node, forward, backward, seq, altseq, sub)


def _subjects(
    ops: Ops, rows: Ints, around: _Around, of: Ints, backward: Flags, forward: Ints
) -> tuple[Ints, Flags]:
    """Return the row of each kernel's call, and whether that is an autograd node."""
    readings, reading = ops.attribution.meaning.readings, ops.attribution.meaning.reading
    is_node = np.array(
        [reading.call is not None and names.is_node(reading.call.name) for reading in readings],
        bool,
    )
    node = (around.node >= 0) & at(is_node, at(reading, around.node), False)
    # a backward op without a node's name belongs to its forward op, if that is in the trace
    origin = np.full(len(rows), NONE, np.int64)
    bare = np.flatnonzero((around.node >= 0) & ~node)
    origin[bare] = ops.forward_of(rows[bare])
    plain = np.where(origin >= 0, origin, around.counted)
    plain = np.where(node, around.node, plain)
    plain = np.where(around.outer >= 0, around.outer, plain)
    subject = plain[of]
    node = (node & (around.outer < 0))[of]
    has_forward = forward >= 0  # a forward kernel's call never belongs to another kernel
    subject[has_forward], node[has_forward] = subject[forward[has_forward]], False
    return subject, node


def _python_calls(attribution: Attribution) -> Flags:
    """Return which rows are Python calls: PyProf's and DLProf's markers, the user's wrapped functions."""
    meaning = attribution.meaning
    marker = np.array(
        [reading.role == "op" and text.startswith("{") for reading, text in
         zip(meaning.readings, meaning.texts, strict=True)], bool,
    )  # fmt: skip
    is_python: Flags = marker[meaning.reading]
    wrapped = (attribution.trace["ranges"]["domain"] == _WRAPPED).fill_null(False).to_numpy()
    # ranges that attribution made have no row in the table
    is_python[: len(wrapped)] |= wrapped
    return is_python & attribution.is_op


def _outermost(attribution: Attribution, python: Flags) -> Flags:
    """Return which of the Python calls are inside no other."""
    rows = np.flatnonzero(python)
    inside = attribution.climb(attribution.parent[rows].astype(np.int64), python)
    is_outermost = np.zeros(len(python), bool)
    is_outermost[rows[inside < 0]] = True
    return is_outermost


def _names(attribution: Attribution, rows: Ints, around: _Around) -> tuple[Ints, Flags]:
    """Return a number per row, equal for ops of the same name inside Python calls of the same name, and
    for each row whether the call is a recurrent cell's."""
    meaning = attribution.meaning
    distinct: dict[str, int] = {}
    number, cells = [], []
    for reading in meaning.readings:
        name = reading.call.name if reading.call is not None else ""
        module, _, op = name.rpartition(".")
        cells.append(op == "forward" and module in GATES)
        number.append(distinct.setdefault(name, len(distinct)))
    named = np.array(number, np.int64)
    inmost = np.where(around.node >= 0, around.node, rows)
    inmost = np.where(around.inner >= 0, around.inner, inmost)
    outer, inner = (at(meaning.reading, column) for column in (around.outer, inmost))
    both: Ints = pairs(at(named, outer), at(named, inner))[2].astype(np.int64)
    return both, at(np.array(cells, bool), outer, False)


def _forward_lanes(ops: Ops, rows: Ints) -> Ints:
    """Return per op row a number for its process and the thread whose sequence numbers it uses."""
    meaning = ops.attribution.meaning
    numbered = ops.attribution.is_op & meaning.seq.at_least(0, slice(None))
    giver = ops.attribution.climb(rows, numbered)
    thread = at(meaning.fwd_thread.column.fill_null(NONE).to_numpy(), giver)
    return pairs(ops.places(rows)[0], thread)[2].astype(np.int64)


def _latest(
    given: tuple[Ints, Ints, Flags], others: tuple[Ints, Ints], wanted: tuple[Ints, Ints, Ints]
) -> Ints:
    """Return for each wanted (lane, number, before) the last forward kernel before it with that number.
    ``given``: per kernel its lane, its number and whether it is a forward kernel. If no kernel has the
    number as its own, a kernel counts that has it as a further number (``others``: kernel, number)."""
    lane, number, forward = given
    latest = np.full(len(wanted[0]), NONE, np.int64)
    main = np.flatnonzero(forward & (number >= 0))
    beside = forward[others[0]]
    for kernel, value in ((main, number[main]), (others[0][beside], others[1][beside])):
        left = np.flatnonzero(latest < 0)
        if not len(kernel) or not len(left):
            continue
        here = [column[left] for column in wanted]
        key = pairs(np.concatenate((lane[kernel], here[0])), np.concatenate((value, here[1])))[
            2
        ].astype(np.int64)
        span = len(lane) + 1
        keys_of_kernels = key[: len(kernel)] * span + kernel
        rank = np.argsort(keys_of_kernels, kind="stable")
        asked = key[len(kernel) :] * span + here[2]
        index = np.searchsorted(keys_of_kernels[rank], asked, side="left") - 1
        hit = at(rank, index)
        same = (hit >= 0) & (at(key[: len(kernel)], hit) == key[len(kernel) :])
        latest[left] = np.where(same, at(kernel, hit), NONE)
    return latest
