"""Calls inside steps in which the host waits for the GPU, so that the GPU runs out of work after them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.pace import (
    NO_GPU,
    Pace,
    blocking,
    count,
    described,
    longest,
    pace,
    said,
)
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.steps.step_times import covered
from opscope.core.question import parameters
from opscope.core.tables.intervals import NONE, Ints, merge, nest

#: The part of the steps' time from which the saving is worth a change.
WORTH: Final = 0.02
#: Ops that wait for the device where their tensor is on one.
_WAITING_OPS: Final = r"\A(aten::(item|_local_scalar_dense|nonzero|is_nonzero|equal)\b)"
_ADVICE: Final[Named] = {
    "torch": (
        "Keep values on the GPU: add losses up with total += loss.detach() and call .item() every 100 steps;"
        " replace x.nonzero() and boolean indexing by torch.where or torch.nonzero_static(…, size=n);"
        " copy with"
        " tensor.to(…, non_blocking=True) from and to pinned memory; drop torch.cuda.synchronize()."
    ),
    "tensorflow": "Read .numpy() of metrics every 100 steps; keep the loop in @tf.function.",
    "keras": "model.compile(…, steps_per_execution=32) reads metrics every 32 steps.",
    "jax": "Drop block_until_ready() and float(x) from the step; read metrics every 100 steps.",
    "mindspore": "Read loss.asnumpy() every 100 steps.",
}
_GENERAL: Final = (
    "Read results back every 100 steps, or copy them asynchronously and read them a step later."
)


def find(answers: Answers, least: float = WORTH) -> Answer:
    """Return a finding if waiting calls in the steps may cost more than 2 % of the steps' time."""
    if answers.cpu_only:
        return CannotTell(NO_GPU + _waiting_lines(answers))
    pace_of_steps = pace(answers)
    if isinstance(pace_of_steps, str):
        return CannotTell(pace_of_steps)
    calls = _in_steps(answers, pace_of_steps)
    if calls.is_empty():
        return []
    saving = longest(calls.group_by("process", "place").agg(pl.col("saving").sum()), "saving")
    if saving <= least * pace_of_steps.whole:
        return []
    return [_finding(answers, pace_of_steps, calls, saving)]


def _waiting_lines(answers: Answers) -> str:
    """Return in words the lines in a CPU's profile that would wait on a GPU; nothing if there are none."""
    frame = answers.ops(categories=True)
    names = frame["op"].unique()
    waiting = names.filter(names.cast(pl.String).str.contains(_WAITING_OPS).fill_null(False))
    mine = frame.filter(pl.col("op").is_in(waiting.implode()) & pl.col("step").is_not_null())
    # of nested ops only the outermost counts: .item() calls _local_scalar_dense
    mine = mine.filter(~pl.col("parent_id").is_in(mine["op_id"].implode()).fill_null(False))
    lines = (
        mine.filter(pl.col("source").is_not_null())
        .group_by(pl.col("source").cast(pl.String), pl.col("op").cast(pl.String))
        .agg(pl.len(), pl.col("step").n_unique().alias("steps"))
        .sort("len", "source", descending=[True, False])
    )
    texts = [
        f"{op} at {source.split(' < ')[0]} ({count(many, 'call')} in {count(steps, 'step')})"
        for source, op, many, steps in lines.head(3).rows()
    ]
    return (
        f"; there, these would wait if their tensors are on it: {'; '.join(texts)}" if texts else ""
    )


def _in_steps(answers: Answers, pace: Pace) -> pl.DataFrame:
    """Return the waiting calls of the steps: call, process, thread, place, start, end, time and saving (ns).

    ``saving``: the idle time that the host caused on the process's devices, until its next waiting call or
    the step's end, at most the time of the call: without the wait, the launches after it would come that much
    sooner.
    """
    table, rows = answers.trace["calls"], blocking(answers.attribution)
    calls = (
        table[rows]
        .select("process", "thread", "start", "end")
        .with_columns(pl.Series("call", rows))
    )
    parts = []
    for (process,), steps in pace.steps.group_by("process"):
        mine = calls.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32))).sort("start")
        inside = nest(steps["start"].to_numpy(), steps["end"].to_numpy()).innermost(
            mine["start"].to_numpy()
        )
        kept = np.flatnonzero(inside >= 0)
        mine = mine[kept].with_columns(
            steps["place"].gather(inside[kept]), (pl.col("end") - pl.col("start")).alias("time")
        )
        parts.append(mine.with_columns(pl.Series("saving", _save(pace, process, mine), pl.Int64)))
    return pl.concat(parts) if parts else calls.clear()


def _save(pace: Pace, process: object, mine: pl.DataFrame) -> Ints:
    # gaps that began with a wait for input have another cause
    gaps = pace.pieces.filter(
        pl.col("process").eq_missing(pl.lit(process, pl.Int32)), pl.col("cause") != "input"
    )
    best = np.zeros(len(mine), np.int64)
    start, end = mine["start"].to_numpy(), mine["end"].to_numpy()
    until = np.append(start[1:], pace.steps["end"].to_numpy().max()).astype(np.int64)
    for _, part in gaps.group_by("device"):
        spans = merge(part["start"].to_numpy(), part["end"].to_numpy())
        best = np.maximum(best, covered(spans, start, np.maximum(until, start)))
    saved: Ints = np.minimum(best, end - start)
    return saved


def _finding(answers: Answers, pace: Pace, calls: pl.DataFrame, saving: int) -> Finding:
    time = longest(calls.group_by("process", "place").agg(pl.col("time").sum()), "time")
    rows = _rows(answers, calls)
    total, many = pace.whole, len(calls)
    named = answers.trace["calls"]["name"].gather(calls["call"]).cast(pl.String)
    names = named.str.replace(r"_v\d+$", "").unique().sort().to_list()
    most = min(time, pace.idle)
    return Finding(
        what=f"{count(many, 'call')} in {count(len(pace.steps), 'step')} wait for the GPU"
        f" ({many / len(pace.steps):,.1f} a step), {ms(time)} in all ({share(time, total)} of the"
        " steps); the GPU then waits for the host",
        evidence=f"{said(rows)}; calls: {', '.join(names[:4])}{pace.left_out}",
        recommendation=fit(answers, _ADVICE, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=most,
        reasoning="Counted are synchronising calls, and copies to the host that had ended when their call"
        " returned, on threads that launch work or mark steps (calls table, memops()). At most"
        f" {ms(most)}: the lesser of all the calls' time and the devices' idle time in the steps"
        " (idle_time of"
        f" idle_steps(): {ms(pace.idle)}). At least nothing: the value may be needed where it is read."
        " Without"
        " the wait the launches after it come sooner by the time of the call; of each call the lesser of its"
        " time and of the gaps that the host causes until the next such call (host_wait of idle_steps(),"
        " waits"
        f" for input left out) is {ms(saving)} in all. The replay lets the calls return at once.",
        confidence="high" if saving > 5 * WORTH * total else "medium",
        rows=rows,
        edit=Edit(waits=calls["call"].to_numpy().astype(np.int64)),
    )


def _rows(answers: Answers, calls: pl.DataFrame) -> pl.DataFrame:
    attribution = answers.attribution
    op = np.full(len(calls), NONE, np.int64)
    ranges = attribution.trace["ranges"]
    keys = ["process", "thread"]
    ops = np.flatnonzero(attribution.is_op)
    keys_of_ops = ranges.select(pl.col(keys).fill_null(NONE))[ops]
    mine = calls.select(pl.col(keys).fill_null(NONE), "start").with_row_index("row")
    for (process, thread), part in mine.group_by(keys):
        here = ops[
            ((keys_of_ops["process"] == process) & (keys_of_ops["thread"] == thread)).to_numpy()
        ]
        start, end = (ranges[name].gather(here).to_numpy() for name in ("start", "end"))
        innermost = nest(start, end).innermost(part["start"].to_numpy())
        op[part["row"].to_numpy()] = np.where(
            innermost >= 0, here[innermost] if len(here) else NONE, NONE
        )
    where = [calls[name].fill_null(NONE).to_numpy().astype(np.int64) for name in (*keys, "start")]
    every = Ops(attribution)
    # the op that the program called has the program's line: .item(), and not the op that it calls
    lined = every.readings["source"].is_not_null().to_numpy()
    if lined.any():
        called = attribution.climb(op, lined[attribution.meaning.reading])
        op = np.where(called >= 0, called, op)
    return described(every, where[0], where[1], where[2], op, calls["time"].to_numpy())


DETECTOR = Detector(
    name="sync_calls",
    question="Does the host wait for the GPU inside steps, so that the GPU waits for the host afterwards?",
    find=find,
    fires="more than {least} of the steps' time",
    thresholds={"least": parameters.share("the least share of the time that this takes")},
    looks_at="Synchronising calls (cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize, and"
    " HIP's) and copies to the host that the host waited for, as `.item()`, `.cpu()` and `nonzero` make"
    " them, in steps that are no warm-up, with the line of the program. It fires if the gaps after them, each"
    " counted up to the time of its call, are above 2 % of the steps. Copies from pageable memory to the GPU"
    " are `pageable_copies`.",
    abstains="On a CPU-only profile, where it names the lines that would wait on a GPU; without kernels,"
    " their launches, or steps.",
)
