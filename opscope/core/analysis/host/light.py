"""The measurements of light mode: the time of steps by phase, and the slowest steps."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.light_format import PHASES
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.trace import Trace

WHOLE: Final = "step"
TOTALS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "phase": pl.String,
    "steps": pl.Int64,
    "total": pl.Int64,
    "share": pl.Float64,
    "mean": pl.Int64,
    "median": pl.Int64,
    "p90": pl.Int64,
    "p99": pl.Int64,
    "max": pl.Int64,
    "reason": pl.String,
}
#: Reason for an unknown phase: it was never recorded, so its time, if any, counts in other phases.
UNSEEN: Final = {
    "input": "no wait for a data loader was seen; one inside the graph (TensorFlow) cannot be",
    "forward": "no backward pass was seen, before which it lies",
    "backward": "no backward pass was seen; it is not where a step is one compiled program",
    "optimizer": "no step of an optimizer was seen; it is not where a step is one compiled program",
    "collective": "the program called none itself; those inside the backward pass are part of that",
}
STEPS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "step": pl.Int64,
    "start": pl.Int64,
    "duration": pl.Int64,
    **{f"{name}_phase": pl.Int64 for name in PHASES[:4]},
    "collective_phase": pl.Int64,
    "outside_phases": pl.Int64,
    "full": pl.Boolean,
}
_QUANTILES: Final = {"median": 0.5, "p90": 0.9, "p99": 0.99}


def is_light(trace: Trace) -> bool:
    """Whether any part of the trace was recorded in light mode."""
    return len(trace["light"]) > 0


def ranks(trace: Trace) -> pl.DataFrame:
    """Return process and rank."""
    return trace["processes"].select("process", "rank")


def totals(trace: Trace) -> pl.DataFrame:
    """Return one row per process and phase, and one for the whole step before them (``TOTALS``; ns)."""
    if not is_light(trace):
        return pl.DataFrame(schema=TOTALS)
    sums = (
        trace["light_blocks"]
        .group_by("process")
        .agg(pl.col("duration", *PHASES).sum(), pl.col("longest").max(), pl.col("steps").sum())
    )
    lengths = trace["light_lengths"].with_columns(pl.col("phase").cast(pl.String))
    by_rank = dict(ranks(trace).rows())
    rows: list[dict[str, Any]] = []
    for one in sums.sort("process").to_dicts():
        for phase in (WHOLE, *PHASES):
            total = one["duration" if phase == WHOLE else phase]
            counted = lengths.filter(
                (pl.col("process") == one["process"]) & (pl.col("phase") == phase)
            )
            who = {
                "process": one["process"],
                "rank": by_rank.get(one["process"]),
                "phase": phase,
                "steps": one["steps"],
            }
            if phase in UNSEEN and not total:
                rows.append(who | {"reason": UNSEEN[phase]})
                continue
            row = who | {
                "total": total,
                "share": total / one["duration"] if one["duration"] else None,
                "mean": total // one["steps"] if one["steps"] else None,
                "max": one["longest"] if phase == WHOLE else None,
            }
            rows.append(row | {name: quantile(counted, at) for name, at in _QUANTILES.items()})
    return pl.DataFrame(rows, schema=TOTALS)


def quantile(counted: pl.DataFrame, share: float) -> int | None:
    """Return the length (ns) that the share ``share`` of the steps does not exceed, within 1 %; None
    without steps."""
    ordered = counted.sort("length")
    total = int(ordered["steps"].sum())
    if not total:
        return None
    reached = ordered.filter(pl.col("steps").cum_sum() >= share * total)
    return int(reached["length"][0]) if len(reached) else None


def kept_steps(trace: Trace) -> pl.DataFrame:
    """Return the complete steps that were kept, the slowest first (``STEPS``; ns)."""
    frame = trace["light_steps"].join(ranks(trace), on="process", how="left")
    seen = (
        trace["light_blocks"]
        .group_by("process")
        .agg(*(pl.col(name).sum().gt(0).alias(f"_{name}") for name in UNSEEN))
    )
    frame = frame.join(seen, on="process", how="left").with_columns(
        pl.when(pl.col(f"_{name}")).then(pl.col(name)).alias(name) for name in UNSEEN
    )
    return (
        frame.rename({name: f"{name}_phase" for name in PHASES[:5]} | {"other": "outside_phases"})
        .sort("full", "duration", "process", "start", descending=[False, True, False, False])
        .select(*STEPS)
        .cast(STEPS)  # type: ignore[arg-type]
    )


COST: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "steps": pl.Int64,
    "full_steps": pl.Int64,
    "step_cost": pl.Int64,
    "step_cost_error": pl.Int64,
    "step_cost_share": pl.Float64,
    "writing_share": pl.Float64,
    "spells": pl.Int64,
    "spells_recorded": pl.Int64,
    "reason": pl.String,
}


def cost(trace: Trace) -> pl.DataFrame:
    """Return one row per process: the cost of light mode per step and in total (``COST``; ns)."""
    sums = trace["light_blocks"].group_by("process").agg(pl.col("duration").sum())
    frame = (
        trace["light"]
        .join(ranks(trace), on="process", how="left")
        .join(sums, on="process", how="left")
    )
    return (
        frame.with_columns(
            (pl.col("step_cost") * pl.col("steps") / pl.col("duration")).alias("step_cost_share"),
            (pl.col("writing") / (pl.col("end") - pl.col("start"))).alias("writing_share"),
            pl.col("not_recorded").alias("reason"),
        )
        .sort("process")
        .select(*COST)
        .cast(COST)  # type: ignore[arg-type]
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The time of all steps of a training, by phase; the phases exclude each other and add up exactly.

    Quantiles are right within 1 %. Steps that were also recorded in full are left out.
    """
    return totals(profile.trace)


def answer_steps(profile: Answers) -> pl.DataFrame:
    """Whole steps of a training: the slowest first; then the first, the last and some of the others."""
    return kept_steps(profile.trace)


def answer_cost(profile: Answers) -> pl.DataFrame:
    """Light mode's own cost per step, the precision of this figure, and the spells that it recorded."""
    return cost(profile.trace)


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "light()",
                (
                    "one row per process and phase of its steps, and before them one for the whole "
                    "step (phase `step`)"
                ),
                columns(
                    "process rank phase steps total share mean median p90 p99 max reason",
                    """
                    phase: text: the phase: its time is not in another; step: all of them
                    steps: count: steps that ended, without those that were recorded in full
                    total: ns: time of all steps in the phase
                    share: fraction: total / the time of all steps
                    mean: ns: mean over all steps
                    median: ns: median over all steps, right within 1 %
                    p90: ns: nine of ten steps take no longer; right within 1 %
                    p99: ns: 99 of 100 steps take no longer; right within 1 %
                    max: ns: the longest step; null for a phase
                    reason: text: why nothing is known of the phase: none was seen
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="light",
                title="Steps, by light mode",
                empty="light mode was off: opscope run --light, or opscope.init(light=True)",
                shown="rank phase steps total share mean median p90 p99 max reason",
                sums="",
            ),
        ),
    ),
    Question(
        answer=answer_steps,
        frames=(
            Frame(
                "light_steps()",
                "one row per step that was kept whole, the slowest first, those recorded in full last",
                columns(
                    "process rank step start duration input_phase forward_phase backward_phase "
                    "optimizer_phase collective_phase outside_phases full",
                    """
                    duration: ns: time of the step
                    forward_phase: ns: time before a backward pass, from the end of another phase on
                    collective_phase: ns: time in collectives that the program called itself
                    full: yes/no: whether everything was recorded besides, so that the step took longer
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="light_steps",
                title="Slowest steps, by light mode",
                empty="light mode was off: opscope run --light, or opscope.init(light=True)",
                shown=(
                    "rank step duration input_phase forward_phase backward_phase optimizer_phase "
                    "collective_phase outside_phases"
                ),
                sums="",
                written=False,
            ),
        ),
    ),
    Question(
        answer=answer_cost,
        frames=(
            Frame(
                "light_cost()",
                "one row per process that light mode measured",
                columns(
                    "process rank steps full_steps step_cost step_cost_error step_cost_share "
                    "writing_share spells spells_recorded reason",
                    """
                    steps: count: steps that ended, without those that were recorded in full
                    full_steps: count: steps that were recorded in full besides
                    step_cost: ns: what light mode's hooks took of a step, on average
                    step_cost_error: ns: step_cost is right within this, 19 times in 20
                    step_cost_share: fraction: step_cost / the mean step
                    writing_share: fraction: time that a thread of opscope's took to sum up and write /
                        the time measured
                    spells: count: times at which steps stayed slow
                    spells_recorded: count: spells of which a few steps were recorded in full
                    reason: text: why spells were not recorded, with how many
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="light_cost",
                title="Light mode's own cost",
                empty="light mode was off: opscope run --light, or opscope.init(light=True)",
                sums="",
            ),
        ),
    ),
)
