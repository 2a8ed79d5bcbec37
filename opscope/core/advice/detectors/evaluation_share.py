"""Evaluation between the steps of a training that takes much of its time."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.pace import NO_STEPS, count
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.question import parameters
from opscope.core.tables.intervals import Ints

#: The part of the time of steps and evaluations from which evaluations are worth a change.
LEAST: Final = 0.2
#: The fewest steps and evaluations to judge by, and the fewest ops of one evaluation.
_STEPS: Final = 3
_OPS: Final = 4
_RECOMMENDED: Final[Named] = {
    "torch": "Evaluate less often, or on a part of the data; with model.eval() and torch.inference_mode(),"
    " batches may be several times as large, as nothing is kept for a backward pass. Rollouts: run many"
    " environments at a time, so that one forward pass serves all.",
    "keras": "model.fit(…, validation_freq=n, validation_steps=m, validation_batch_size=…).",
    "tensorflow": "model.fit(…, validation_freq=n, validation_steps=m, validation_batch_size=…), or evaluate"
    " less often and in larger batches.",
}
_GENERAL: Final = "Evaluate less often, on a part of the data, or in larger batches."


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for the process that evaluates longest."""
    steps = marked_steps(answers)
    if steps.is_empty():
        return CannotTell(NO_STEPS)
    if not _has_room(answers, steps, least):
        return []
    ops = answers.ops(categories=True)
    direction = pl.col("direction").cast(pl.String)
    outer = ops.filter(pl.col("parent_id").is_null(), direction.is_not_null())
    if not outer.select((direction == "backward").any()).item():
        return CannotTell(
            "no backward pass was recorded: it cannot be told which steps train and which evaluate"
        )
    findings = []
    for (process,), part in steps.group_by("process", maintain_order=True):
        mine = outer.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32)))
        spans = _evaluations(part.sort("start"), mine)
        steps_time = int(part["time"].sum())
        time = int((spans[1] - spans[0]).sum())
        if len(part) >= _STEPS and time > least * (time + steps_time):
            findings.append(_finding(answers, mine, spans, time, steps_time))
    findings.sort(key=lambda finding: -finding.time)
    return findings[:1]


def _has_room(answers: Answers, steps: pl.DataFrame, least: float) -> bool:
    """Whether the time between and after a process's steps, where evaluations are, suffices for a finding."""
    last = answers.trace["ranges"].group_by("process").agg(pl.col("end").max().alias("last"))
    # steps of several threads may overlap
    gap = (pl.col("start").shift(-1) - pl.col("end").cum_max()).clip(0)
    times = steps.sort("start").group_by("process").agg(
        pl.col("time").sum(), gap.sum().alias("between"), pl.max("end")
    )  # fmt: skip
    times = times.join(last, on="process", how="left", nulls_equal=True)
    room = pl.col("between") + (pl.col("last") - pl.col("end")).clip(0).fill_null(0)
    return bool(times.select((room > least * (room + pl.col("time"))).any()).item())


def _evaluations(steps: pl.DataFrame, ops: pl.DataFrame) -> tuple[Ints, Ints]:
    """Return start and end (ns) of the stretches between and after the steps in which only forward passes
    ran."""
    start, end = (steps[name].to_numpy() for name in ("start", "end"))
    last = max(end.max(), ops["end"].to_numpy().max(initial=0)) + 1
    low = np.maximum.accumulate(end)
    high = np.append(start[1:], last)
    at = ops["start"].to_numpy()
    gap = np.searchsorted(low, at, side="right") - 1
    inside = (gap >= 0) & (at < high[np.maximum(gap, 0)])
    direction = ops["direction"].cast(pl.String)
    table = (
        pl.DataFrame(
            {
                "gap": gap,
                "start": at,
                "end": ops["end"],
                "forward": direction == "forward",
                "trains": direction.is_in(["backward", "optimizer"]),
            }
        )
        .filter(pl.Series(inside))
        .group_by("gap")
        .agg(
            pl.col("trains").any(),
            pl.col("forward").sum().alias("passes"),
            pl.col("start").filter("forward").min(),
            pl.col("end").filter("forward").max(),
        )
        .filter(~pl.col("trains"), pl.col("passes") >= _OPS)
        .sort("gap")
    )
    return table["start"].to_numpy().astype(np.int64), table["end"].to_numpy().astype(np.int64)


def _finding(
    answers: Answers, ops: pl.DataFrame, spans: tuple[Ints, Ints], time: int, steps_time: int
) -> Finding:
    start = ops["start"].to_numpy()
    at = np.searchsorted(spans[0], start, side="right") - 1
    inside = (at >= 0) & (start < spans[1][np.maximum(at, 0)])
    rows = ops.filter(pl.Series(inside)).with_columns(
        (pl.col("end") - pl.col("start")).alias("duration")
    )
    longest = int((spans[1] - spans[0]).max())
    return Finding(
        what=f"{count(len(spans[0]), 'evaluation')} between and after the steps: {ms(time)}, beside"
        f" {ms(steps_time)} of steps ({share(time, time + steps_time)} of both)",
        evidence=f"the longest takes {ms(longest)}; {places(rows, 'ops')}",
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=time,
        reasoning="An evaluation is a stretch between two steps, or after the last, in which ops of forward"
        f" passes ran ({_OPS} or more), and none of a backward pass or an optimizer (ops(): direction;"
        " steps(): start, end): from its first op to its last. At most all of it; at least nothing: how often"
        " a model must be evaluated, no profile tells.",
        confidence="medium",
        of="run",
        stands_out=True,
        rows=evidence(rows),
    )


DETECTOR = Detector(
    name="evaluation_share",
    question="Does evaluation between the steps take much of a training's time?",
    find=find,
    fires="{least} of the time of steps and evaluations, and three steps",
    thresholds={"least": parameters.share("the least share of the time that evaluations take")},
    looks_at="Stretches between the steps, and after the last, in which forward passes alone ran: ops() by"
    " direction, steps().",
    abstains="Without steps, and where no backward pass was recorded, as of compiled programs whose ops have"
    " no direction.",
)
