"""Memory by op: how much memory grew and what was allocated in each op, alone and with the ops inside it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.memory.memory import OUTSIDE, of_memory
from opscope.core.analysis.ops.ops import Ops
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, compact
from opscope.core.tables.intervals import NONE, Ints, depth
from opscope.core.tables.lanes import lanes_of

_PLACE: Final = ("process", "device")
_SELF: Final = ("self_increase", "self_allocated", "self_allocations")
_WHOLE: Final = ("increase", "allocated", "allocations")
OPS: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "op": pl.String,
    "calls": pl.Int64,
    "increase": pl.Int64,
    "self_increase": pl.Int64,
    "allocations": pl.Int64,
    "self_allocations": pl.Int64,
    "allocated": pl.Int64,
    "self_allocated": pl.Int64,
    "reason": pl.String,
}
#: Levels of the nest that are searched for an op of the same name if times alone do not decide.
_DEEP: Final = 64


def memory_ops(ops: Ops, changes: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, device and op name that was open at a change of memory; sizes in bytes.

    ``changes``: from ``memory.memory_changes``. ``self_…``: sums over the changes at which the op was the
    innermost; without the prefix, over all changes at which it was open, including those of the ops inside
    it. A change counts once if an op is inside one of its own name. ``increase``: allocated less released;
    ``allocated``: all allocations, whatever was released; ``allocations``: their number. ``calls``: the op's
    executions in the process, with or without changes of memory. The ``self_`` columns of a device, including
    a row without op (``reason``), add up to all its changes.
    """
    if changes.is_empty():
        return pl.DataFrame(schema=OPS)
    names, texts = _names(ops)
    parts = []
    for key, part in changes.group_by(_PLACE, maintain_order=True):
        parts.append(_of_device(ops, part, names, texts, key))
    calls = _calls(ops, names, texts)
    ops_of_devices = pl.concat(parts).join(
        calls, on=["process", "op"], how="left", nulls_equal=True
    )
    return (
        ops_of_devices.cast({name: OPS[name] for name in ops_of_devices.columns})
        .with_columns(pl.col("op").fill_null("").alias("by_op"))
        .sort(
            *_PLACE,
            "self_increase",
            "allocated",
            "by_op",
            descending=[False, False, True, True, False],
        )
        .select(*OPS)
    )


def _names(ops: Ops) -> tuple[NDArray[np.int32], list[str | None]]:
    """Return the number of each reading's op name, and the names."""
    codes, texts = compact(ops.readings["op"])
    first = {text: index for index, text in reversed(list(enumerate(texts)))}
    same = np.array([first[text] for text in texts], np.int32)
    return same[codes], texts


def _of_device(
    ops: Ops,
    events: pl.DataFrame,
    names: NDArray[np.int32],
    texts: list[str | None],
    key: tuple[Any, ...],
) -> pl.DataFrame:
    """Return the rows of one process and device."""
    size, op_row = events["bytes"].to_numpy(), events["op_row"].to_numpy()
    gained = size > 0
    values = np.stack([size, np.where(gained, size, 0), gained.astype(np.int64)], axis=1)
    rows, own, totals = _with_ancestors(ops, op_row[op_row >= 0], values[op_row >= 0])
    name = names[ops.attribution.meaning.reading[rows]]
    outermost = ~_inside_namesake(ops, rows, name)
    summed = pl.DataFrame(
        {
            "op": pl.Series([texts[code] for code in name.tolist()], dtype=pl.String),
            **{column: own[:, number] for number, column in enumerate(_SELF)},
            **{column: totals[:, number] * outermost for number, column in enumerate(_WHOLE)},
        }
    )
    by_name = summed.group_by("op").sum().with_columns(pl.lit(None, pl.String).alias("reason"))
    outside = values[op_row < 0].sum(axis=0)
    if (op_row < 0).any():
        both = [*zip(_SELF, outside, strict=True), *zip(_WHOLE, outside, strict=True)]
        row = {"op": None, **{column: int(value) for column, value in both}, "reason": OUTSIDE}
        by_name = pl.concat([by_name, pl.DataFrame([row], schema=by_name.schema)])
    return by_name.with_columns(
        pl.lit(value, OPS[column]).alias(column) for column, value in zip(_PLACE, key, strict=True)
    )


def _with_ancestors(
    ops: Ops, ints: Ints, values: NDArray[np.int64]
) -> tuple[Ints, NDArray[np.int64], NDArray[np.int64]]:
    """Return the op rows ``ints`` and all ops around them, each once, in order.

    Also return the sums of their own ``values``, and the sums that include all ops inside.
    """
    attribution = ops.attribution
    there = np.zeros(len(attribution.parent), bool)  # one flag per row is faster than a sort
    there[ints] = True
    there |= attribution.above(there)
    every = np.flatnonzero(there)
    index = np.cumsum(there) - 1
    parent = attribution.parent[every].astype(np.int64)
    above = np.where(parent >= 0, index[np.maximum(parent, 0)], NONE)
    alone = np.zeros((len(every), values.shape[1]), np.int64)
    np.add.at(alone, index[ints], values)
    with_inside = alone.copy()
    level = depth(above)
    order = np.argsort(
        -level, kind="stable"
    )  # the innermost first, so that each sum is complete when it is added
    edges = np.flatnonzero(np.diff(level[order])) + 1
    for part in np.split(order, edges):
        inner = part[above[part] >= 0]
        np.add.at(with_inside, above[inner], with_inside[inner])
    return every, alone, with_inside


def _inside_namesake(ops: Ops, rows: Ints, name: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return whether each op is inside an op of the same name."""
    ranges = ops.attribution.trace["ranges"]
    process, thread = (
        ranges[column].fill_null(NONE).gather(rows).to_numpy() for column in ("process", "thread")
    )
    start, end = (ranges[column].gather(rows).to_numpy() for column in ("start", "end"))
    lane = lanes_of(process, thread).of.astype(np.int64)
    order = np.lexsort((rows, -end, start, name, lane))
    # by lane and name: an op can only be inside an earlier one that ends later
    group = (
        np.concatenate(([True], (np.diff(lane[order]) != 0) | (np.diff(name[order]) != 0)))
        if len(order)
        else np.zeros(0, bool)
    )
    number = np.cumsum(group)
    reach = pl.DataFrame({"group": number, "end": end[order]}).select(
        pl.col("end").cum_max().shift(1).over("group")
    )["end"]
    maybe = np.zeros(len(rows), bool)
    maybe[order] = (pl.Series(end[order]) <= reach).fill_null(False).to_numpy()
    inside: NDArray[np.bool_] = maybe.copy()
    parent = ops.attribution.parent
    names = np.full(len(parent), NONE, np.int32)
    names[rows] = name
    pending = np.flatnonzero(maybe)
    here = at(parent, rows[pending]).astype(np.int64)
    for _ in range(_DEEP):
        ended = here < 0
        inside[pending[ended]] = False
        going = ~ended & (names[np.maximum(here, 0)] != name[pending])
        pending, here = pending[going], at(parent, here[going]).astype(np.int64)
        if not len(pending):
            break
    return inside


def _calls(ops: Ops, names: NDArray[np.int32], texts: list[str | None]) -> pl.DataFrame:
    """Return how often the op of each name ran in each process."""
    ranges = ops.attribution.trace["ranges"]
    code = names[ops.attribution.meaning.reading[ops.rows]]
    counted = (
        pl.DataFrame({"process": ranges["process"].gather(ops.rows), "code": code})
        .group_by("process", "code")
        .agg(pl.len().cast(pl.Int64).alias("calls"))
    )
    named = pl.Series("op", [texts[code] for code in counted["code"].to_list()], pl.String)
    return counted.with_columns(named).select("process", "op", "calls")


def answer(profile: Answers) -> pl.DataFrame:
    """How much memory grew and was allocated in the ops of each name, alone and with the ops inside.

    Over all rows of a device, ``self_increase`` adds up to what memory grew by in the trace, and
    ``self_allocated`` to all that was allocated.
    """
    return of_memory(profile, OPS, memory_ops)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "memory_ops()",
            "one row per process, device and name of an op that was open at a change of memory",
            columns(
                "process device op calls increase self_increase allocations "
                "self_allocations allocated self_allocated reason",
                """
                calls: count: executions of the op in the process, with memory or without
                increase: bytes: allocations less releases while the op was open, those of ops inside it
                    included
                self_increase: bytes: allocations less releases at which the op was the innermost
                allocations: count: allocations while the op was open
                self_allocations: count: allocations at which the op was the innermost
                allocated: bytes: allocations while the op was open, added up
                self_allocated: bytes: allocations at which the op was the innermost, added up
                """,
            ),
        ),
    ),
    merged=lacking.MOMENTS,
    reports=(
        Report(
            name="memory_ops",
            title="Memory by op, with the ops inside it",
            empty="memory was not recorded (opscope run --memory records it)",
            shown=(
                "process device op calls increase self_increase allocations self_allocations "
                "allocated self_allocated reason"
            ),
            sums="self_allocated self_increase self_allocations",
        ),
    ),
)
