"""Time without an op, by reason, user range, phase and the thread's state."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.summary.summary import CPU_REASONS, compiles, outside_ops
from opscope.core.attribution.attribute import REASONS, Launched
from opscope.core.attribution.reasons import NO_RANGES_ON_THREAD
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Sums
from opscope.core.question.words import columns
from opscope.core.schema import COMPILE
from opscope.core.tables.columns import at, gather, known_sum, spread
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE, Ints, intersect, merge, nest

SCHEMA: Final = {
    "reason": pl.String,
    "range": pl.String,
    "phase": pl.String,
    "state": pl.String,
    "kernels": pl.Int64,
    "copies": pl.Int64,
    "time": pl.Int64,
    "share": pl.Float64,
}
_BY: Final = ("reason", "range", "phase", "state")


def gap_sums(ops: Ops) -> pl.DataFrame:
    """Return the sums by reason, user range and phase in which kernels and copies without an op were
    launched: reason, range, phase, state (null), kernels, copies, time (ns)."""
    attribution = ops.attribution
    trace = attribution.trace
    parts = []
    for name, launched in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        duration = trace[name]["end"] - trace[name]["start"]
        rows = np.flatnonzero(launched.reason > 0)
        parts.append(
            pl.DataFrame(
                {
                    "reason": spread("", list(REASONS), launched.reason[rows]).cast(pl.String),
                    **_launched_in(ops, launched, rows),
                    "state": pl.Series([None], dtype=pl.String).new_from_index(0, len(rows)),
                    "kernel": np.full(len(rows), name == "kernels"),
                    "time": duration.gather(rows),
                }
            )
        )
    kernel = pl.col("kernel")
    counted = (
        kernel.sum().cast(pl.Int64).alias("kernels"),
        (~kernel).sum().cast(pl.Int64).alias("copies"),
    )
    return pl.concat(parts).group_by(_BY).agg(*counted, pl.col("time").sum())


def _launched_in(ops: Ops, launched: Launched, rows: Ints) -> dict[str, pl.Series]:
    calls = ops.attribution.trace["calls"]
    call = launched.call[rows]
    process, thread, time = (
        gather(calls[name].fill_null(NONE), call).fill_null(NONE - 1).to_numpy()
        for name in ("process", "thread", "start")
    )
    phase = ops.phase(process, thread, time)
    alone = launched.reason[rows] == NO_RANGES_ON_THREAD
    if alone.any():
        # XLA compiles on threads of its own, on which it runs kernels to choose among them: on an H100, 97 %
        # of the device time of JAX's first step
        compiling = alone & phase.is_null().to_numpy() & _while_compiling(ops, process, time)
        phase = pl.Series(compiling).replace_strict({True: COMPILE}, default=phase)
    return {"range": ops.context.user(process, thread, time).cast(pl.String), "phase": phase}


def _while_compiling(ops: Ops, process: Ints, time: Ints) -> NDArray[np.bool_]:
    """Return whether a thread of the process was compiling a program at each time (ns)."""
    is_compiling = np.zeros(len(time), bool)
    for (number,), spans in compiles(ops.attribution.trace).group_by("process"):
        start, end = merge(spans["start"].to_numpy(), spans["end"].to_numpy())
        at_ = np.searchsorted(start, time, "right") - 1
        is_compiling |= (process == number) & (at_ >= 0) & (time < end[at_])
    return is_compiling


def gap_sums_on_cpu(ops: Ops, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the same columns for a CPU-only profile: time of the steps' threads inside steps, outside any
    op.

    ``frame`` is the profile's ops. ``state``: what the thread did, if
    the scheduler's records are in the trace. kernels and copies are null.
    """
    trace, role = ops.attribution.trace, ops.attribution.meaning.role
    labels = trace["ranges"].filter(pl.Series((role == ROLE["user"]) | (role == ROLE["phase"])))
    compiling = compiles(trace)
    parts = [pl.DataFrame(schema={**dict.fromkeys(_BY, pl.String), "time": pl.Int64})]
    for process, thread, outside in outside_ops(trace, frame):
        lane = (process, thread)
        here = (pl.col("process") == process) & (pl.col("thread") == thread)
        states = trace["thread_states"].filter(here)
        cuts = pl.DataFrame(
            dict(zip(("start", "end"), ops.cuts().get(lane, ([], [])), strict=True))
        )
        spans = [labels.filter(here), compiling.filter(here), states, cuts]
        start, end = _cut(outside, spans)
        position = (np.full(len(start), process), np.full(len(start), thread), start)
        mine = spans[1]
        compiled, _ = intersect(
            merge(mine["start"].to_numpy(), mine["end"].to_numpy()), (start, end)
        )
        parts.append(
            pl.DataFrame(
                {
                    "reason": np.where(np.isin(start, compiled), *CPU_REASONS),
                    "range": ops.context.user(*position).cast(pl.String),
                    "phase": ops.phase(*position),
                    "state": _open(states, start).cast(pl.String),
                    "time": end - start,
                }
            )
        )
    nothing = pl.lit(None, pl.Int64)
    return (
        pl.concat(parts)
        .group_by(_BY)
        .agg(nothing.alias("kernels"), nothing.alias("copies"), pl.col("time").sum())
    )


def added_gaps(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``gap_sums`` of parts of a job, joined, with one row per reason, range, phase and state."""
    return sums.group_by(_BY).agg(known_sum("kernels"), known_sum("copies"), pl.col("time").sum())


def gaps(sums: pl.DataFrame, total: int) -> pl.DataFrame:
    """Return one row per reason, user range and phase of the time without an op: reason, range, phase,
    state, kernels, copies, time (ns), share of ``total`` (ns), which is all device time.

    ``time`` adds up to the summary's ``device_unattributed_time``. ``sums``: ``gap_sums`` or, without a GPU,
    ``gap_sums_on_cpu``; of parts of a job they may be joined.
    """
    return (
        added_gaps(sums)
        .filter(pl.col("time") > 0)
        .with_columns((pl.col("time") / (total or None)).alias("share"))
        .sort("time", *_BY, descending=[True, *[False] * len(_BY)], nulls_last=True)
        .select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
    )


def _cut(outside: tuple[Ints, Ints], spans: list[pl.DataFrame]) -> tuple[Ints, Ints]:
    """Return the intervals ``outside``, cut wherever one of ``spans`` begins or ends."""
    first, last = outside
    edges = [span[name].to_numpy() for span in spans for name in ("start", "end")]
    cuts = np.unique(np.concatenate([first, last, *edges]).astype(np.int64))
    start, end = cuts[:-1], cuts[1:]
    of = np.searchsorted(first, start, side="right") - 1
    inside = (of >= 0) & (end <= at(last, of))
    return start[inside], end[inside]


def _open(table: pl.DataFrame, time: Ints) -> pl.Series:
    row: NDArray[Any] = np.full(len(time), NONE)
    if len(table):
        row = nest(table["start"].to_numpy(), table["end"].to_numpy()).innermost(time)
    return gather(table["state"], row)


def answer(profile: Answers) -> pl.DataFrame:
    """Device time without an op, by reason as in ``unattributed()``, user range, phase and thread state.

    Without a GPU it is the threads' time inside steps but outside any op.
    """
    return gaps(_sums(profile), profile.summary()["device_time"].item() or 0)


def _sums(profile: Answers) -> pl.DataFrame:
    if profile.cpu_only:
        return gap_sums_on_cpu(profile.of(op_index), profile.of(op_rows))
    return gap_sums(profile.of(op_index))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "gaps()",
            "one row per reason, user range, phase and thread state of device time without an op",
            columns(
                "reason range phase state kernels copies time share",
                """
                state: text: what the thread did: running, or why it was off the CPU; null if not recorded
                time: ns: device time without an op; adds up to the summary's device_unattributed_time
                share: fraction: time / all device time
                """,
            ),
        ),
    ),
    merged=Sums(
        table="gaps",
        of=_sums,
        added=added_gaps,
        finished=lambda sums, job: gaps(sums, job.device_time),
    ),
    reports=(
        Report(
            name="gaps",
            title="Time without an op, in detail",
            empty="no time without an op: all of it has one, or none was recorded",
            sums="time kernels copies",
        ),
    ),
)
