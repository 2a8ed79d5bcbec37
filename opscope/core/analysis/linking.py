"""Calls completed by the other side of autograd, where their own text does not tell their cost.

A weight gradient's size is in its forward's call; a forward's result is as large as the gradient that
its backward node takes. Each distinct pair of readings is costed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import perf
from opscope.core.attribute import Attribution
from opscope.core.columns import at
from opscope.core.dialects import Reading
from opscope.core.intervals import NONE, Ints
from opscope.core.perf import tensorcore
from opscope.core.perf.shapes import expanded
from opscope.core.schema import OpCall, TensorSpec

ForwardOf = Callable[[Ints], Ints]
Numbers: TypeAlias = NDArray[np.int32]
_NO_CALL: Final = OpCall("")


def linked_costs(
    attribution: Attribution,
    catalogue: pl.DataFrame,
    forward_of: ForwardOf,
    target: tensorcore.Target | None = None,
) -> tuple[pl.DataFrame, Numbers]:
    """The catalogue with a row for each completed call, and each range row's place in it.

    Only ops whose own FLOPs or bytes are not known are completed, and only where that makes them so.
    """
    meaning = attribution.meaning
    reading = meaning.reading
    place = reading.copy()
    unknown = (catalogue["matrix_flops"].is_null() | catalogue["bytes"].is_null()).to_numpy()
    ops = np.flatnonzero(attribution.is_op)
    calls = [reading.call or _NO_CALL for reading in meaning.readings]
    wanting = ops[unknown[meaning.reading[ops]]]
    backward = np.array(
        [perf.wants_forward(call.name) and gone for call, gone in zip(calls, unknown, strict=True)],
        bool,
    )
    rows = wanting[backward[meaning.reading[wanting]]]
    forward = _lookups(attribution, calls, rows, forward_of(rows))
    catalogue = _complete(
        catalogue,
        place,
        rows[forward >= 0],
        forward[forward >= 0],
        reading,
        lambda own, others: perf.columns(own, forwards=others, target=target),
        calls,
    )
    nodes = ops[np.array([_gives_outputs(r) for r in meaning.readings], bool)[meaning.reading[ops]]]
    origin = forward_of(nodes)
    kept = origin >= 0
    nodes, origin = nodes[kept], origin[kept]
    kept = unknown[meaning.reading[origin]]
    catalogue = _complete(
        catalogue,
        place,
        origin[kept],
        nodes[kept],
        reading,
        lambda own, others: perf.columns(
            [_with_outputs(*pair) for pair in zip(own, others, strict=True)], target=target
        ),
        calls,
    )
    divides = np.array([call.name == "aten::div" for call in calls], bool)
    spread = ops[divides[reading[ops]]]
    means = np.array([call.name.startswith("MeanBackward") for call in calls], bool)
    node = attribution.climb(spread, attribution.is_op & means[reading])
    kept = node >= 0
    catalogue = _complete(
        catalogue,
        place,
        spread[kept],
        node[kept],
        reading,
        lambda own, others: perf.columns(
            [_divided_gradient(*pair) for pair in zip(own, others, strict=True)], target=target
        ),
        calls,
    )
    return catalogue, place


def _with_outputs(call: OpCall, node: OpCall) -> OpCall:
    """A forward whose results are as large as the gradients that its node takes."""
    return replace(call, outputs=node.inputs)


def _divided_gradient(call: OpCall, node: OpCall) -> OpCall:
    """A mean's gradient is its result's, expanded and divided: traces without strides hide that.

    The dimensions that the expansion repeats are read once.
    """
    grad, *rest = call.inputs or (None,)
    kept = node.inputs[0] if node.inputs else None
    if (
        isinstance(grad, TensorSpec)
        and isinstance(kept, TensorSpec)
        and grad.strides is None
        and len(grad.shape) == len(kept.shape)
    ):
        call = replace(call, inputs=(expanded(kept, grad), *rest))
    return call


def _complete(
    catalogue: pl.DataFrame,
    place: Numbers,
    rows: Ints,
    others: Ints,
    reading: Numbers,
    cost: Callable[[list[OpCall], list[OpCall]], pl.DataFrame],
    calls: list[OpCall],
) -> pl.DataFrame:
    """Costs of distinct (own, other) pairs of readings, appended where they are known.

    ``place`` is changed for the rows whose cost became known.
    """
    if not len(rows):
        return catalogue
    pairs, which = np.unique(
        np.stack((reading[rows], reading[others])), axis=1, return_inverse=True
    )
    own, other = ([calls[number] for number in side.tolist()] for side in pairs)
    found = cost(own, other)
    # what had its FLOPs already has gained only if its bytes are known now
    bare = catalogue["matrix_flops"].is_null().gather(pairs[0])
    better = found["matrix_flops"].is_not_null() & (bare | found["bytes"].is_not_null())
    known = better.to_numpy()
    number = np.where(known, len(catalogue) + np.cumsum(known) - 1, NONE)
    placed = number[which.reshape(-1)]
    place[rows[placed >= 0]] = placed[placed >= 0]
    return pl.concat([catalogue, found.filter(pl.Series(known))])


def _gives_outputs(reading: Reading) -> bool:
    """An autograd node with shapes: what comes in are the gradients of its forward's results."""
    call = reading.call
    return (
        reading.role == "op"
        and reading.direction == "backward"
        and call is not None
        and bool(call.inputs)
        and "Backward" in call.name
        and not call.name.startswith(("aten::", "autograd::"))
    )


def _lookups(attribution: Attribution, calls: list[OpCall], rows: Ints, forward: Ints) -> Ints:
    """``forward`` with embedding lookups in the place of the ops that stood in for them.

    A C++ autograd function has no sequence number of its own in old traces. The latest op that has
    its node's number ran just before it; the next lookup on that thread is the one, unless an op of
    a later number came first.
    """
    meaning = attribution.meaning
    named = np.array(
        [call.name.startswith("fbgemm::split_embedding_codegen_lookup") for call in calls], bool
    )
    node = np.array(
        [call.name.startswith("torch::autograd::CppNode<SplitLookup") for call in calls], bool
    )
    asking = np.flatnonzero(node[meaning.reading[rows]] & (forward >= 0)) if len(rows) else rows
    lookups = np.flatnonzero(attribution.is_op & named[meaning.reading])
    if not len(asking) or not len(lookups):
        return forward
    ranges = attribution.trace["ranges"]
    start, thread = ranges["start"].to_numpy(), ranges["thread"].fill_null(NONE).to_numpy()
    process = ranges["process"].fill_null(NONE).to_numpy()
    lane = np.unique(np.stack((process, thread)), axis=1, return_inverse=True)[1].reshape(-1)
    order = lookups[np.lexsort((start[lookups], lane[lookups]))]
    seq = meaning.seq.fill_null(NONE).to_numpy()
    numbered = np.flatnonzero(attribution.is_op & (seq >= 0))
    numbered = numbered[np.lexsort((start[numbered], lane[numbered]))]
    here = forward[asking]
    after = _next(order, lane, start, here)
    # the last numbered op before the lookup must still have the node's number
    before = _last(numbered, lane, start, after)
    fits = (after >= 0) & (at(seq, before) == seq[here])
    forward = forward.copy()
    forward[asking] = np.where(fits, after, NONE)
    return forward


def _next(order: Ints, lane: Ints, start: Ints, rows: Ints) -> Ints:
    """For each row the first of ``order`` (sorted by lane and start) at or after it on its lane."""
    base = int(start.min())
    span = int(start.max()) - base + 1
    keys = lane[order] * span + (start[order] - base)
    found = np.searchsorted(keys, lane[rows] * span + (start[rows] - base), side="left")
    hit = order[np.minimum(found, len(order) - 1)]
    return np.where((found < len(order)) & (lane[hit] == lane[rows]), hit, NONE)


def _last(order: Ints, lane: Ints, start: Ints, rows: Ints) -> Ints:
    """For each row (-1: none) the last of ``order`` before it on its lane."""
    base = int(start.min())
    span = int(start.max()) - base + 1
    keys = lane[order] * span + (start[order] - base)
    safe = np.where(rows >= 0, rows, 0)
    found = np.searchsorted(keys, lane[safe] * span + (start[safe] - base), side="left") - 1
    hit = order[np.maximum(found, 0)]
    return np.where((rows >= 0) & (found >= 0) & (lane[hit] == lane[safe]), hit, NONE)
