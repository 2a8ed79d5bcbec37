"""The device work of each engine step, and the waits of the device: every moment counts once. || Work
belongs to the step in which it was launched, which lasts until the begin of the next step, because
samplers run after the range of a step. If several kernels run at a moment, it belongs to the first of them
to begin. While the device waits, the moment belongs to the step that the host is in: ``host`` inside the
step's range, ``between`` after it (scheduler, detokenising, or no requests).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.serving.engine_steps import engine_steps
from opscope.core.analysis.serving.parts import COPIES, PARTS, parts_of
from opscope.core.analysis.steps.iterations import launch_times
from opscope.core.attribution.served_steps import engine_of
from opscope.core.tables.columns import at, compact
from opscope.core.tables.intervals import NONE, Ints

HOST, BETWEEN = "host", "between"
#: All kinds of moments in a step.
MOMENTS: Final = (*PARTS, HOST, BETWEEN)
#: A row per kernel and copy that a step launched. ``own``: the moments (ns) that count as its own.
WORK: Final = {
    "row": pl.Int64,
    "part": pl.UInt8,
    "start": pl.Int64,
    "end": pl.Int64,
    "own": pl.Int64,
    "is_kernel": pl.Boolean,
    "replay": pl.Int64,
    "graph": pl.Int64,
    "launched": pl.Int64,
}


def step_work(profile: Answers) -> pl.DataFrame:
    """The kernels and copies (``WORK``) that engine steps launched, by step and begin; without a GPU the ops.

    ``row``: the step's place in ``engine_steps``; ``replay``: the call that replayed the graph of which the
    row is part, -1 for none; ``launched``: when the row was launched (ns).
    """
    ops, steps = profile.of(op_index), profile.of(engine_steps)
    if profile.cpu_only:
        tables = [_computed(ops, steps)]
    else:
        tables = [_launched(ops, steps, name) for name in ("kernels", "memops")]
    work = pl.concat(tables).sort("process", "start", "end")
    reach = pl.col("end").cum_max().shift(1).over("process").fill_null(pl.col("start"))
    own = (pl.col("end") - pl.max_horizontal("start", reach)).clip(lower_bound=0)
    return work.with_columns(own.alias("own")).sort("row", "start", "end").select(*WORK)


def _launched(ops: Ops, steps: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the rows of ``kernels`` or ``memops`` that a step launched: process, and ``WORK`` without
    ``own``."""
    trace = ops.attribution.trace
    table, launched = trace[name], getattr(ops.attribution, name)
    process = table["process"].fill_null(NONE).to_numpy()
    when = launch_times(ops, name, launched)
    row = step_at(steps, process, when)
    # work that another engine of the process launched belongs to none of these steps
    call = np.where(launched.replay >= 0, launched.replay, launched.call).astype(np.int64)
    thread = at(trace["calls"]["thread"].fill_null(NONE).to_numpy(), call, NONE)
    row[engine_of(ops.served_steps, process, thread) > 0] = NONE
    kept = np.flatnonzero(row >= 0)
    if name == "kernels":
        parts = _parts(ops, table["name"].gather(kept), launched.op[kept])
        graph = table["graph"].gather(kept).cast(pl.Int64)
    else:
        parts = np.full(len(kept), PARTS.index(COPIES), np.uint8)
        graph = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(kept))
    return pl.DataFrame(
        {
            "process": process[kept].astype(np.int32),
            "row": row[kept],
            "part": parts,
            "start": table["start"].gather(kept),
            "end": table["end"].gather(kept),
            "is_kernel": np.full(len(kept), name == "kernels"),
            "replay": launched.replay[kept].astype(np.int64),
            "graph": graph,
            "launched": when[kept],
        },
        schema={"process": pl.Int32, **{key: kind for key, kind in WORK.items() if key != "own"}},
    )


def _computed(ops: Ops, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the ops that no other op calls, where the CPU is the device, as rows of ``_launched``."""
    attribution = ops.attribution
    ranges = attribution.trace["ranges"]
    rows = np.flatnonzero(attribution.is_op & ~attribution.above(attribution.is_op))
    process = ranges["process"].gather(rows).fill_null(NONE).to_numpy()
    start = ranges["start"].gather(rows).fill_null(0).to_numpy()
    row = step_at(steps, process, start)
    thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
    row[engine_of(ops.served_steps, process, thread) > 0] = NONE
    kept = np.flatnonzero(row >= 0)
    count = len(kept)
    reading = attribution.meaning.reading[rows[kept]].astype(np.int64)
    distinct, which = np.unique(reading, return_inverse=True)
    named = ops.readings.select(pl.col("op", "op_type").cast(pl.String))[distinct].rows()
    parts = parts_of(named, [name for name, _ in named])
    places = np.array([PARTS.index(part) for part in parts], np.uint8)
    return pl.DataFrame(
        {
            "process": process[kept].astype(np.int32),
            "row": row[kept],
            "part": places[which.reshape(-1)] if count else np.empty(0, np.uint8),
            "start": start[kept],
            "end": ranges["end"].gather(rows[kept]),
            "is_kernel": np.zeros(count, bool),
            "replay": np.full(count, NONE),
            "graph": pl.Series([None], dtype=pl.Int64).new_from_index(0, count),
            "launched": start[kept],
        },
        schema={"process": pl.Int32, **{key: kind for key, kind in WORK.items() if key != "own"}},
    )


def step_at(steps: pl.DataFrame, process: Ints, time: Ints) -> Ints:
    """Return for each time (ns) of a process the place of the last step that had begun by then; -1 for none.
    Times after the last step's range belong to the last step, because nothing shows where it ends."""
    row = np.full(len(time), NONE, np.int64)
    of, start = steps["process"].fill_null(NONE).to_numpy(), steps["start"].to_numpy()
    for number in np.unique(of).tolist():
        mine, here = np.flatnonzero(of == number), np.flatnonzero(process == number)
        index = np.searchsorted(start[mine], time[here], side="right") - 1
        row[here] = np.where(index >= 0, mine[np.maximum(index, 0)], NONE)
    return row


def _parts(ops: Ops, names: pl.Series, op: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return the part of each kernel, as its place in ``PARTS``; each pair of op and kernel is examined
    once."""
    codes, texts = compact(names)
    reading = at(ops.attribution.meaning.reading, op.astype(np.int64)).astype(np.int64)
    reading[op < 0] = NONE
    key = (reading + 1) * (len(texts) + 1) + codes
    distinct, which = np.unique(key, return_inverse=True)
    of_reading, of_name = np.divmod(distinct, len(texts) + 1)
    readings = ops.readings.select(pl.col("op", "op_type").cast(pl.String)).rows()
    readings.append((None, None))  # the last entry is for kernels without an op, whose place is -1
    parts = parts_of(
        [readings[code - 1] for code in of_reading.tolist()],
        [texts[code] if code < len(texts) else None for code in of_name.tolist()],
    )
    places: NDArray[np.uint8] = np.array([PARTS.index(part) for part in parts], np.uint8)
    return places[which.reshape(-1)] if len(places) else places


def waits(profile: Answers) -> pl.DataFrame:
    """The moments in which the device of an engine step's process had no work of a step, by step: ``row``,
    ``host`` and ``between`` (ns)."""
    steps, work = profile.of(engine_steps), profile.of(step_work)
    parts = [pl.DataFrame(schema={"row": pl.Int64, HOST: pl.Int64, BETWEEN: pl.Int64})]
    process = steps["process"].fill_null(NONE).to_numpy()
    of_work = process[work["row"].to_numpy()] if len(work) else np.empty(0, np.int64)
    for number in np.unique(process).tolist():
        mine = np.flatnonzero(process == number)
        begin, end, after = (
            steps[name].gather(mine).to_numpy() for name in ("start", "end", "next")
        )
        here = work.filter(pl.Series(of_work == number)).sort("start")
        idle = _idle(here, int(begin[0]), int(after[-1]))
        inside = _overlap(*idle, begin, np.minimum(end, after))
        total = _overlap(*idle, begin, after)
        parts.append(pl.DataFrame({"row": mine, HOST: inside, BETWEEN: total - inside}))
    return pl.concat(parts)


def _idle(work: pl.DataFrame, first: int, last: int) -> tuple[Ints, Ints]:
    """Return the disjoint intervals, in order, from ``first`` to ``last`` (ns) in which no work ran."""
    start, end = (work[name].to_numpy() for name in ("start", "end"))
    reach = np.maximum.accumulate(np.append(first, end))
    until = np.append(start, last)
    low, high = np.maximum(reach, first), np.minimum(until, last)
    keep = high > low
    return low[keep], high[keep]


def _overlap(low: Ints, high: Ints, start: Ints, end: Ints) -> Ints:
    """Return how long (ns) disjoint intervals overlap each of [start, end), from running sums."""
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(high - low)))

    def upto(time: Ints) -> Ints:
        index = np.searchsorted(low, time, side="right")
        inside = np.where(index > 0, np.minimum(time, at(high, index - 1)) - at(low, index - 1), 0)
        return total[np.maximum(index - 1, 0)] + np.maximum(inside, 0)

    length: Ints = upto(end) - upto(start)
    return length
