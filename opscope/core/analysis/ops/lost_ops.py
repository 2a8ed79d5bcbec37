"""Estimate how many ops or kernels are missing where steps repeat: each step lacks some that most others
have.

A *slot* is an item that each step has once: an op by its thread, name and the launches before it in the step,
or a node of a graph by its name. If each record is missing with probability p, a slot that any step has is in
k of S steps with the binomial probability of k successes at 1 - p. For ops, p is estimated from slots that
most steps have: of other slots, it is unknown which are in every step and which only in a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from opscope.core.attribution.attribute import Attribution
from opscope.core.tables.columns import at, matching
from opscope.core.tables.intervals import NONE, Ints, merge
from opscope.core.tables.trace import Trace

#: The number of steps, and a function that gives the step at each time, below 0 for none.
Steps: TypeAlias = "tuple[int, Callable[[Ints], Ints]]"
#: With fewer than these steps, the causes cannot be distinguished; with fewer slots, a share is not a
#: reliable estimate.
_STEPS, _SLOTS = 3, 20
#: A larger share of missing records than this cannot be estimated.
_MOST: Final = 0.9
_HALVINGS: Final = 50
#: Below this share, nothing counts as missing.
_SURELY: Final = 1e-9
#: This many kernels of a step may lie outside its marks.
_AT_EDGE: Final = 2
#: A node of MindSpore's static graph, which each step runs once.
_GRAPH_NODE: Final = r"-op[0-9]+(?:_[0-9]+)?$"
#: Nodes of ONNX Runtime whose bodies a run may leave out (``readers/onnxruntime/nodes.py``).
_WITH_BODY: Final = ("If", "Loop", "Scan", "SequenceMap")
#: More steps than this add nothing, and binomial coefficients of hundreds overflow.
_MOST_STEPS: Final = 64


def share_missing(slots: Sequence[tuple[Ints, int]], all_steps_equal: bool = False) -> float | None:
    """Return the share of missing records, from groups of slots: in how many steps each slot is, and the
    number of steps. None if nothing repeats."""
    groups = []
    for present, steps in slots:
        least = 1 if all_steps_equal else steps // 2 + 1
        usual = present[present >= least]
        if _STEPS <= steps <= _MOST_STEPS and len(usual):
            groups.append((steps, least, len(usual), int(usual.sum())))
    if sum(group[2] for group in groups) < _SLOTS:
        return None
    records = sum(group[3] for group in groups)
    low, high = 0.0, _MOST
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        expected = sum(
            count * _mean_present(steps, least, share) for steps, least, count, _ in groups
        )
        low, high = (share, high) if expected > records else (low, share)
    return high if high < _MOST * 0.999 else None


def error_of(share: float, present: Ints, steps: int) -> float:
    """Return the standard error of the number of records missing in steps that are all equal, with ``share``
    missing. The missing records of a slot that any step has are counted exactly; only slots that no step has
    are estimated."""
    if share < _SURELY:
        return 0.0
    seen, step = len(present), min(share, 1 - share) / 100
    low, high = (_mean_present(steps, 1, share + by) for by in (-step, step))
    mean, square = (_mean_present(steps, 1, share, power) for power in (1, 2))
    of_share = ((square - mean * mean) / seen) ** 0.5 * 2 * step / abs(high - low)
    unseen = share**steps
    by_chance = seen * unseen / (1 - unseen) ** 2
    by_share = seen * steps * share ** (steps - 1) / (1 - unseen) ** 2 * of_share
    return float(steps * (by_chance + by_share**2) ** 0.5)


def _mean_present(steps: int, least: int, missing: float, power: int = 1) -> float:
    """Return the mean number of steps that have a slot, over the slots in ``least`` steps or more; or the
    mean of a ``power`` of that number."""
    at = [
        comb(steps, k) * (1 - missing) ** k * missing ** (steps - k)
        for k in range(least, steps + 1)
    ]
    weighed = sum(k**power * weight for k, weight in enumerate(at, start=least))
    return float(weighed / sum(at))


def presence(slot: Ints, step: Ints) -> Ints:
    """Return in how many steps each slot is, for slots that no step has twice."""
    pairs = np.unique(np.stack([slot, step]), axis=1, return_counts=True)
    (slots, _), times = pairs
    names, steps = np.unique(slots, return_counts=True)
    twice = np.unique(slots[times > 1])
    kept: Ints = steps[~np.isin(names, twice)].astype(np.int64)
    return kept


def ops_among_launches(
    launch: tuple[Ints, Ints, Ints],
    op: tuple[Ints, Ints, Ints],
    name: Ints,
    left_out: Ints,
) -> list[tuple[Ints, int]]:
    """Return the slots of ops among launches, for ``share_missing``; ops and launches are (thread, step,
    start), where a step below 0 is none. Ops with a name in ``left_out`` have no slot. Only steps in which a
    thread launched equally often are compared, because the launches before an op determine its place."""
    kept = [launch[1] >= 0, (op[1] >= 0) & ~np.isin(name, left_out)]
    thread, step, start = (
        np.concatenate([column[rows] for column, rows in zip(pair, kept, strict=True)])
        for pair in zip(launch, op, strict=True)
    )
    name, launches = name[kept[1]], int(kept[0].sum())
    is_op = np.arange(len(thread)) >= launches
    # no op begins while its thread launches, so at equal times (whole µs) the op began first
    order = np.lexsort((~is_op, start, step, thread))
    thread, step, is_op = thread[order], step[order], is_op[order]
    begins = np.flatnonzero(
        np.append(True, (thread[1:] != thread[:-1]) | (step[1:] != step[:-1]))[: len(thread)]
    )
    if not len(begins):
        return []
    lengths = np.diff(np.append(begins, len(thread)))
    counted = np.cumsum(~is_op)
    before: Ints = counted - np.repeat(counted[begins] - ~is_op[begins], lengths)
    launched = np.repeat(np.add.reduceat((~is_op).astype(np.int64), begins), lengths)
    names = np.full(len(thread), -1, np.int64)
    names[is_op] = name[order[is_op] - launches]
    groups = []
    pairs = np.unique(np.stack([thread[begins], launched[begins]]), axis=1)
    for thread_of, number in pairs[:, pairs[1] > 0].T.tolist():
        mine = (thread == thread_of) & (launched == number)
        steps, rows = len(np.unique(step[mine])), mine & is_op
        if steps >= _STEPS:
            slot = before[rows] * (int(names.max()) + 1) + names[rows]
            groups.append((presence(slot, step[rows]), steps))
    return groups


def op_names(attribution: Attribution, rows: Ints) -> Ints:
    """Return a number for the name of the op (and of its node) of each row of ``ranges``; NONE for rows that
    are not ops."""
    meaning = attribution.meaning
    numbers: dict[tuple[object, object], int] = {}
    of_reading = np.array(
        [
            numbers.setdefault(
                (None, None)
                if reading.call is None
                else (reading.call.name, reading.call.param("node")),
                len(numbers),
            )
            for reading in meaning.readings
        ],
        np.int64,
    )
    names = at(of_reading, at(meaning.reading, rows, 0), 0)
    return np.where(rows >= 0, names, NONE).astype(np.int64)


def of_onnxruntime(trace: Trace) -> set[int]:
    """Return the processes that ONNX Runtime's profiles are of, without kernels."""
    origins = [trace.origin, *trace.origin.get("parts", ())]
    if not any(of.get("format") == "onnxruntime" for of in origins):
        return set()
    own = trace["ranges"].filter(pl.col("domain").cast(pl.String) == "opscope.onnxruntime")
    return set(own["process"].drop_nulls().unique()) - set(trace["kernels"]["process"].unique())


def lost_nodes(attribution: Attribution, process: int, steps: Steps) -> tuple[int, int] | None:
    """Return how many nodes of ONNX Runtime's graph are missing, and the standard error: each run of a
    session runs each node once, except nodes in the body of another. ``steps``: their number, and the
    function that gives the step at each time (below 0 for none)."""
    ranges, meaning = attribution.trace["ranges"], attribution.meaning
    of = (ranges["process"].fill_null(NONE) == process).to_numpy()
    rows = np.flatnonzero(attribution.is_op[: len(ranges)] & of)
    start, end = (ranges[name].to_numpy()[rows] for name in ("start", "end"))
    with_body = meaning.each(lambda r: r.call is not None and r.call.name in _WITH_BODY)
    holds = at(with_body, meaning.reading[rows], False)
    low, high = merge(start[holds], end[holds])
    around = np.searchsorted(low, start, "left") - 1
    step = steps[1](start)
    kept = (step >= 0) & ~((around >= 0) & (start < at(high, around, 0)))
    return _estimate(len(rows), op_names(attribution, rows)[kept], step[kept], steps[0])


def lost_graph_kernels(
    attribution: Attribution, process: int, steps: Steps
) -> tuple[int, int] | None:
    """Return how many kernels of MindSpore's static graph are missing, and the standard error: each step
    runs each node once."""
    kernels = attribution.trace["kernels"]
    of = (kernels["process"].fill_null(NONE) == process).to_numpy()
    rows = np.flatnonzero(of & matching(kernels["op_key"], _GRAPH_NODE))
    step = steps[1](kernels["start"].to_numpy()[rows])
    node = kernels["op_key"].gather(rows).to_physical().cast(pl.Int64).to_numpy()
    inside = step >= 0
    missing = _estimate(len(rows), node[inside], step[inside], steps[0])
    if missing is None:
        return None
    # a step's first kernel may begin before its mark (four pipeline ranks: 2.6 ms)
    at_edge = min(int((~inside).sum()), _AT_EDGE * steps[0])
    return max(0, missing[0] - at_edge), missing[1]


def _estimate(rows: int, slot: Ints, step: Ints, steps: int) -> tuple[int, int] | None:
    """Return how many rows are missing in addition to ``rows``, and the standard error; None if a step has no
    row, because it may not have been recorded."""
    if not len(slot) or len(np.unique(step)) < steps:
        return None
    slots = [(presence(slot, step), steps)]
    share = share_missing(slots, all_steps_equal=True)
    if share is None:
        return None
    return round(rows * share / (1 - share)), round(error_of(share, *slots[0]))
