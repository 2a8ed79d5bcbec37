"""A range of iterations whose figures mix unlike iterations: warm-up, cut off, of other work, or very uneven.
The detector ``warm_up`` judges the cost of warm-up; this one judges whether the profile's figures are of
steps that are alike."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.changes import run_of
from opscope.core.advice.communicated import as_int, rank_name
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.steps.iterations import FEWEST, SAME_WORK

#: An iteration of more than this many medians makes a range very uneven.
UNEVEN: Final = 3.0
#: Another way to record later steps, by framework.
_OTHERWISE: Final = {
    "torch": ", or torch.profiler.schedule(wait=1, warmup=5, active=10)",
    "mindspore": ", or mindspore.profiler.schedule(wait=1, warmup=5, active=10)",
}
_BAD: Final = ("is_warm", "is_cut", "is_spilled", "is_other", "is_uneven")


def find(answers: Answers) -> Answer:
    """Return one finding, of the process whose range has most time outside its stable iterations."""
    table = answers.iterations()
    marked = table.filter(pl.col("iteration").is_not_null() & pl.col("is_step").fill_null(False))
    if marked.is_empty():
        return CannotTell("the profile has no steps (no_iterations says how to get them)")
    judged = _judge(answers, marked)
    bad = judged.filter(pl.any_horizontal(*_BAD))
    if bad.is_empty():
        most = as_int(judged.group_by("process").len()["len"].max())
        if most < FEWEST:
            return CannotTell(f"fewer than {FEWEST} steps: whether they are alike cannot be judged")
        return []
    process = (
        bad.group_by("process")
        .agg(pl.col("duration").sum())
        .sort("duration", "process", descending=[True, False])["process"][0]
    )
    mine = pl.col("process") == process
    return [_finding(answers, judged.filter(mine), bad.filter(mine), judged)]


def _judge(answers: Answers, marked: pl.DataFrame) -> pl.DataFrame:
    """Return the iterations, each with the reason why it is not like the others."""
    cut = answers.steps().select("process", "start", pl.col("reason").alias("cut_reason"))
    judged = marked.join(cut, on=["process", "start"], how="left", maintain_order="left")
    is_cut = pl.col("cut_reason").is_not_null()
    warm = pl.col("warm_up").fill_null(False)
    usual = ~is_cut & ~warm
    several = pl.len().over("process") >= FEWEST
    other = pl.lit(False)
    # a kernel whose launch was not recorded is in no step
    launched = not answers.ask("lost_kernels")["lost_launches"].sum()
    for name in ("ops", "kernels") if launched else ("ops",):
        middle = pl.col(name).filter(usual).median().over("process")
        other |= ((pl.col(name) - middle).abs() > SAME_WORK * middle).fill_null(False)
    # kernels without a record of their launch were launched before the first step
    kernels = answers.kernels(categories=True)
    before = (
        kernels.filter(pl.col("call_start").is_null())
        .group_by("process")
        .agg(pl.len().cast(pl.Int64).alias("before"))
        if answers.trace.has("calls")
        else pl.DataFrame(schema={"process": pl.Int32, "before": pl.Int64})
    )
    judged = judged.join(before, on="process", how="left", maintain_order="left")
    count, usually = pl.col("kernels"), pl.col("kernels").filter(usual).median().over("process")
    first = pl.int_range(pl.len()).over("process") == 0
    alike = (pl.col("ops") - pl.col("ops").filter(usual).median().over("process")).abs() <= (
        SAME_WORK * pl.col("ops")
    )
    spilled = (
        first & alike & (count > usually) & (count - pl.col("before") <= (1 + SAME_WORK) * usually)
    ).fill_null(False)
    middle = pl.col("duration").filter(usual).median().over("process")
    return judged.with_columns(
        warm.alias("is_warm"),
        is_cut.alias("is_cut"),
        (other & spilled & several & usual).alias("is_spilled"),
        (other & ~spilled & several & usual).alias("is_other"),
        ((pl.col("duration") > UNEVEN * middle) & several & usual).alias("is_uneven"),
    )


def _finding(
    answers: Answers, mine: pl.DataFrame, bad: pl.DataFrame, judged: pl.DataFrame
) -> Finding:
    said = [
        f"{count} {noun}"
        for name, noun in (
            ("is_warm", "of warm-up"),
            ("is_cut", "that the capture does not hold whole"),
            ("is_spilled", "that also holds what was launched before the capture"),
            ("is_other", "of other work (ops or kernels 10 % off the median)"),
            ("is_uneven", f"of more than {UNEVEN:g} times the median"),
        )
        if (count := int(mine[name].sum()))
    ]
    chosen = _alike(mine)
    first, last = as_int(mine["iteration"].min()), as_int(mine["iteration"].max())
    outside = int(bad["duration"].sum())
    total = int(mine["duration"].sum())
    name = rank_name(mine.row(0, named=True))
    if chosen is None:
        run = answers.of(run_of)
        advice = "Let the program run for more steps, so that there are several after the warm-up."
        if run.steps is None:
            advice = "Record more steps after the warm-up: `opscope run --steps 10:20 -- …`"
            advice += _OTHERWISE.get(run.framework or "", "") + "."
    else:
        advice = (
            f"`opscope report FILE --iter-start {chosen[0]} --iter-stop {chosen[1]}` for the steps that are"
            f" alike; next time `opscope run --steps {chosen[0]}:{chosen[1] + 1} -- …`."
        )
    others = bad["process"].n_unique() < judged["process"].n_unique()
    return Finding(
        what=f"{len(bad)} of {name}'s {len(mine)} recorded step{'s' * (len(mine) != 1)} ({first} to {last})"
        f" {'stands' if len(bad) == 1 else 'stand'} out:"
        f" {'; '.join(said)}",
        evidence="; ".join(
            f"step {row['iteration']}: {ms(row['duration'])}, {row['ops'] or 0:,} ops"
            for row in bad.head(5).rows(named=True)
        )
        + (f"; and {len(bad) - 5} more" if len(bad) > 5 else "")
        + ("; the process with most such time of several is shown" if others else ""),
        recommendation=advice,
        time=outside,
        saving_least=0,
        saving_most=0,
        saving=0,
        reasoning="iterations(): warm_up, ops, kernels and duration of each, against the medians of the"
        " others"
        f" of its process; steps(): reason. {share(outside, total)} of the steps' time is in these. No time"
        " is saved: means and shares of the whole range describe no step.",
        confidence="high",
        rows=with_rest(
            bad.select(
                "process",
                pl.col("iteration").alias("step"),
                pl.col("ops").alias("count"),
                pl.col("duration").alias("time"),
                pl.concat_str(
                    pl.when("is_warm").then(pl.lit("warm-up")),
                    pl.when("is_cut").then(pl.col("cut_reason")),
                    pl.when("is_spilled").then(pl.lit("holds earlier work")),
                    pl.when("is_other").then(pl.lit("other work")),
                    pl.when("is_uneven").then(pl.lit("very long")),
                    separator=", ",
                    ignore_nulls=True,
                ).alias("detail"),
            )
        ),
    )


def _alike(mine: pl.DataFrame) -> tuple[int, int] | None:
    """Return the first and the last of the longest run of steps that are alike; None if it has fewer than
    three."""
    good = mine.select(
        "iteration",
        (pl.col("stable") & ~pl.any_horizontal(*_BAD)).fill_null(False).alias("good"),
    )
    runs = (
        good.with_columns(pl.col("good").rle_id().alias("run"))
        .filter("good")
        .group_by("run", maintain_order=True)
        .agg(pl.len(), pl.col("iteration").first().alias("first"), pl.col("iteration").last())
        .sort("len", descending=True, maintain_order=True)
    )
    if runs.is_empty() or runs["len"][0] < FEWEST:
        return None
    return int(runs["first"][0]), int(runs["iteration"][0])


DETECTOR = Detector(
    name="iteration_range",
    question="Does the range of steps hold warm-up, steps cut off, of other work or very uneven ones?",
    find=find,
    fires="one step of warm-up, cut off, of 10 % more or less work, or of more than 3 "
    "times the median time",
    needs_all_kernels=True,
    looks_at="iterations(): warm-up, number of ops and kernels, and duration of each step, against the"
    " medians"
    " of the other steps of its process; steps(): which the capture does not hold whole. What warm-up"
    " costs is"
    " the question of warm_up.",
    abstains="Without steps that are marked; with fewer than three, unless one was cut off.",
    known_as=("DLProf: Bad Iteration Range",),
)
