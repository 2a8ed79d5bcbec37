"""Steps that wait for a processor, which other processes or too many threads of its own use."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.finding import (
    EVIDENCE,
    Answer,
    Answers,
    CannotTell,
    Detector,
    Finding,
)
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.pace import NO_STEPS, longest
from opscope.core.advice.processors import Use, queued, use
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms, share
from opscope.core.question import parameters

#: The part of the steps' time that the thread waits for a processor from which it is worth a change.
LEAST: Final = 0.05
#: If the wait takes at least this part of the steps' time, and of a median step, this finding comes first,
#: because the times of all others then say little. One long step, such as the first, which compiles, says
#: nothing of the others.
_MOST: Final = 2 / 3
#: Other processes are named as the cause from this many processors on.
_OTHERS: Final = 0.25
_BY_OTHERS: Final = (
    "Run it where no other work takes the processors, or give it processors of its own (taskset -c 0-3, a"
    " container's cpuset); then measure again: the times of a starved run say little about the program."
)
_BY_ITSELF: Final = (
    "Use fewer threads and worker processes than there are processors: OMP_NUM_THREADS, the framework's own"
    " number of threads, fewer workers of the loader."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for the process whose steps wait longest for a processor."""
    steps = marked_steps(answers)
    if steps.is_empty():
        return CannotTell(NO_STEPS)
    parts, unsaid = [], None
    for (process,), part in steps.group_by("process", maintain_order=True):
        number = None if process is None else int(process)
        mine = part.sort("start")
        start, end = (mine[name].to_numpy() for name in ("start", "end"))
        waited = queued(answers, number, start, end)
        if waited is None:
            unsaid = use(answers, number, start, end)
            continue
        wait = pl.Series("wait", waited * (end - start)).round().cast(pl.Int64)
        step_number = pl.int_range(len(mine), eager=True).alias("place")
        parts.append(
            mine.select("process", "step", "start", "end", "time").with_columns(wait, step_number)
        )
    if not parts:
        return CannotTell(_unsaid(unsaid))
    every = pl.concat(parts)
    by_process = every.group_by("process").agg(pl.col("wait", "time").sum())
    worst = by_process.sort("wait", "process", descending=[True, False]).row(0, named=True)
    if worst["wait"] <= least * worst["time"]:
        return []
    mine = every.filter(pl.col("process").eq_missing(pl.lit(worst["process"], pl.Int32)))
    start, end = (mine[name].to_numpy() for name in ("start", "end"))
    used = use(answers, worst["process"], start, end)
    return [_finding(mine, longest(every, "wait"), longest(every, "time"), used)]


def _unsaid(used: Use | None) -> str:
    lacks = (
        "how long threads wait for a processor was not recorded (opscope run samples it on Linux)"
    )
    if used is None or not used.is_full or used.others < _OTHERS:
        return lacks
    return (
        f"{lacks}; other processes used {used.others:.1f} of the {used.processors} processors, and hardly any"
        " was idle"
    )


def _finding(steps: pl.DataFrame, time: int, steps_time: int, used: Use | None) -> Finding:
    who = "how the processors were used was not recorded"
    cause, change = "", _BY_OTHERS
    if used is not None:
        who = (
            f"of {used.processors} processors this process uses {used.own:.1f}, its child processes"
            f" {used.children:.1f}, others {used.others:.1f}"
        )
        by_others = used.others >= _OTHERS
        cause = (
            " that other processes use" if by_others else " that its own threads and workers use"
        )
        change = _BY_OTHERS if by_others else _BY_ITSELF
    typical = float(np.median(steps["wait"].to_numpy() / np.maximum(steps["time"].to_numpy(), 1)))
    rows = steps.sort("wait", descending=True, maintain_order=True).select(
        "process",
        "step",
        pl.lit(1, pl.Int64).alias("count"),
        pl.col("wait").alias("time"),
        pl.format("{} % of the step", (100 * pl.col("wait") / pl.col("time")).round(1)).alias(
            "detail"
        ),
    )
    return Finding(
        what=f"the steps wait for a processor{cause}: {ms(time)} of {ms(steps_time)}"
        f" ({share(time, steps_time)} of the steps)",
        evidence=who,
        recommendation=change,
        time=time,
        saving_least=0,
        saving_most=time,
        reasoning="Samples of how long the process's first thread could run and no processor was free"
        " (/proc/self/schedstat), weighted by the parts of the steps in which they hold; who uses the"
        " processors: cpu_utilization()'s samples. At most all of the waiting; at least nothing, where the"
        " thread that waits is not the one that computes. There is no estimate: no change of the program"
        " alone makes a machine idle.",
        confidence="medium",
        doubts=change is _BY_OTHERS and used is not None,
        stands_out=change is _BY_ITSELF or min(time / max(steps_time, 1), typical) > _MOST,
        rows=with_rest(rows.select(pl.col(name).cast(EVIDENCE[name]) for name in rows.columns)),
    )


DETECTOR = Detector(
    name="starved",
    question="Do the steps wait for a processor that other processes or its own threads use?",
    find=find,
    fires="more than {least} of the steps' time",
    thresholds={"least": parameters.share("the least share of the steps' time that is waited")},
    looks_at="Samples of each process (Linux): how long its first thread waited for a processor, and what of"
    " the processors it, its child processes and others used while the steps ran.",
    abstains="Without steps, and where the waiting was not sampled: by other recorders, on other systems, in"
    " runs shorter than two samples.",
)
