"""Ranks for which the others wait: which rank comes last to collectives, and what it does longer than the
others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import run_of
from opscope.core.advice.communicated import as_int, communicates, rank_name
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.ranks.stragglers import step_stragglers
from opscope.core.perf.devices.vendors import TOOLS, Tools
from opscope.core.question import parameters

#: The part of all ranks' time that is waiting from which uneven ranks are worth a change.
LEAST: Final = 0.05
#: A single rank is named if it causes at least this part of the waiting.
ALONE: Final = 0.5
#: A kind of work, or the rank's own waiting, is the cause if it makes up at least this part of the rank's
#: lateness.
_MOST: Final = 0.5
#: Parts of a step, their names, and the kind of cause that they show.
_PARTS: Final = {
    "kernel_part": ("computing on the device", "compute"),
    "copy_part": ("copies", "compute"),
    "loader_part": ("waiting for its data loader", "input"),
    "runtime_part": ("calls that launch or synchronise", "launch"),
    "op_part": ("the ops of its host", "host"),
    "other_part": ("its program outside any op", "host"),
}
_WHAT_TO_DO: Final = {
    "compute": "Give each rank the same work: batches of equal size and length (bucket sequences by length,"
    " a sampler that balances tokens), equal parts of the model; then look whether its device runs at the"
    " same clock",
    "input": "Give that rank's loader the same means: workers, storage and files of equal size (see"
    " data_loader)",
    "launch": "Look at what shares that rank's processor: pin each rank to its own cores"
    " (`numactl --cpunodebind`) and set OMP_NUM_THREADS; launch fewer and larger kernels",
    "host": "Look at what that rank alone does on its host: logging, checkpoints and evaluation `if rank"
    " == 0`,"
    " garbage collection, another process on its cores; do it on another thread, or between epochs",
    "wait": "Mend the ranks for which that rank waits in its other groups first",
    None: "Capture that rank with its steps (opscope.step()) and stacks, and compare its steps with the"
    " others'"
    " (`opscope report FILE --rank N --reports steps`)",
}
_IN_TURN: Final = (
    "No single rank is late: the ranks are late in turn. Balance what varies by batch (bucket sequences by"
    " length, pack them to equal tokens), and look for noise on the hosts: garbage collection, logging,"
    " other processes"
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding if 5 % or more of the ranks' time is waiting for other ranks in collectives."""
    collectives = answers.collectives()
    processes = answers.trace["processes"]["process"].n_unique()
    if collectives.is_empty():
        if answers.trace["ranges"].is_empty() and answers.trace["kernels"].is_empty():
            return CannotTell("the profile has neither kernels nor ops")
        return []
    if processes < 2:
        return CannotTell(
            "the profile holds one rank of a job: give the captures of several ranks together"
            " (`opscope advise rank0.json rank1.json`), or capture with `opscope run -- torchrun …`"
        )
    late = step_stragglers(answers)
    if late.is_empty():
        return CannotTell(
            "no collective is known on two ranks: the captures name no process groups, hold different steps"
            " or only point-to-point transfers; capture all ranks with opscope, or with a PyTorch that"
            " records groups (2.3 or later)"
        )
    windows = answers.communication().select("process", "window", "computation_time")
    steps = _steps(answers, late).group_by("process").agg(pl.col("time").sum().alias("of_steps"))
    late = late.join(windows, on="process", how="left").join(steps, on="process", how="left")
    window = int(late.select(pl.coalesce("of_steps", "window")).to_series().drop_nulls().sum())
    waiting = int(late["waiting_time"].sum())
    if not window or waiting < least * window:
        return []
    return [_finding(answers, late, waiting, window)]


def _finding(answers: Answers, late: pl.DataFrame, waiting: int, window: int) -> Finding:
    caused = int(late["caused_waiting"].sum())
    worst = late.row(0, named=True)
    name, lateness = rank_name(worst), int(worst["lateness"])
    table = "; ".join(
        f"{rank_name(row)}: last in {row['last']:,} of {row['compared']:,}, caused"
        f" {ms(row['caused_waiting'])}, waited {ms(row['waiting_time'])}"
        for row in late.head(4).rows(named=True)
    )
    more = len(late) - 4
    if more > 0:
        table += f"; and {more:,} other ranks"
    alone = worst["caused_waiting"] > max(ALONE, 1.5 / len(late)) * caused and lateness > 0
    problem = f"Ranks wait {share(waiting, window)} of their time for each other ({ms(waiting)} of all ranks)"
    if not alone:
        return Finding(
            what=f"{problem}; no rank alone is late: {name}, most of all, causes"
            f" {share(worst['caused_waiting'], caused)} of the waiting of which the last rank is known",
            evidence=table,
            recommendation=f"{_IN_TURN}.",
            time=as_int(late["waiting_time"].max()),
            saving_least=0,
            saving_most=as_int(late["waiting_time"].max()),
            reasoning="stragglers(): caused_waiting and waiting_time by rank, of collectives that at least"
            " two ranks recorded; communication(): window. At most what the rank that waits longest waits.",
            confidence="medium",
            rows=_rows(late),
        )
    cause, reason, edit = _cause(answers, late, worst)
    advice = _WHAT_TO_DO[cause]
    run = answers.of(run_of)
    clocks = TOOLS.get(run.vendor or "", Tools()).clocks
    if cause == "compute" and run.on_gpu and clocks is not None:
        advice += f" (`{clocks}`)"
    others = late.filter(pl.col("process") != worst["process"])["waiting_time"].max()
    bound = min(lateness, as_int(others))
    return Finding(
        what=f"{problem}, mostly for {name}: it comes last to {worst['last']:,} of {worst['compared']:,}"
        f" collectives, by {ms(lateness)} in all; {reason}",
        evidence=table,
        recommendation=f"{advice}.",
        time=lateness,
        saving_least=0,
        saving_most=bound,
        reasoning=f"stragglers(), of the collectives that end in steps: lateness of {name}, summed over"
        " those to which it alone came last; the others can begin at most that much earlier, and"
        f" save at most what the one that waits longest waits ({ms(as_int(others))}, waiting_time). At least"
        " nothing: the next rank may be as late. What it does longer: steps(), the medians of the parts"
        " of its steps less those of the others' steps; without steps, computation_time of communication().",
        confidence="high" if cause else "medium",
        rows=_rows(late),
        edit=edit,
    )


def _rows(late: pl.DataFrame) -> pl.DataFrame:
    """The ranks as rows of evidence: ``count`` is how often each was last, ``time`` the waiting that it
    caused (ns)."""
    return late.select(
        "process",
        pl.col("last").alias("count"),
        pl.col("caused_waiting").alias("time"),
        pl.format(
            "rank {}: compared {}, waited {} ns",
            pl.col("rank").cast(pl.String).fill_null("unknown"),
            "compared",
            "waiting_time",
        ).alias("detail"),
    )


def _cause(
    answers: Answers, late: pl.DataFrame, worst: dict[str, int]
) -> tuple[str | None, str, Edit | None]:
    """Return the kind of the cause (None: not known), the cause in words, and the change to propose."""
    lateness = int(worst["lateness"])
    steps = _steps(answers, late)
    mine = pl.col("process") == worst["process"]
    own, others = steps.filter(mine), steps.filter(~mine)
    if len(own) and len(others):
        longer = {}
        for part in _PARTS:
            here, there = _middle(own, part), _middle(others, part)
            if here is not None and there is not None:
                longer[part] = as_int(here - there) * len(own)
        if longer:
            part = max(longer, key=lambda name: longer[name])
            if longer[part] >= _MOST * lateness:
                said, kind = _PARTS[part]
                edit = _edit(answers, late, worst) if part == "kernel_part" else None
                return (
                    kind,
                    f"its steps have {ms(longer[part])} more of {said} than the others'",
                    edit,
                )
    if worst["waiting_time"] >= _MOST * lateness:
        waited = int(worst["waiting_time"])
        return "wait", f"it has itself waited {ms(waited)} for others in collectives", None
    if not (len(own) and len(others)):
        compute = late.filter(~mine)["computation_time"].median()
        if compute is not None and worst["computation_time"] is not None:
            more = int(worst["computation_time"]) - as_int(compute)
            if more >= _MOST * lateness:
                said = f"it computes {ms(more)} longer than the others"
                return "compute", said, _edit(answers, late, worst)
    return None, "what it does meanwhile cannot be told from this profile", None


def _steps(answers: Answers, late: pl.DataFrame) -> pl.DataFrame:
    """Return the ranks' steps that are no warm-up."""
    return marked_steps(answers).filter(
        pl.col("process").is_in(late["process"].implode()) & ~pl.col("warm_up").fill_null(False)
    )


def _middle(steps: pl.DataFrame, part: str) -> Any:
    # a part that a process did not record has its time in the later parts
    return steps[part].fill_null(0).median()


def _edit(answers: Answers, late: pl.DataFrame, worst: dict[str, int]) -> Edit | None:
    """Return the edit in which the late rank's kernels, except those of collectives, take the others' median
    time."""
    kernels = answers.kernels(categories=True)
    mine = (kernels["process"] == worst["process"]).fill_null(False).to_numpy()
    rows = np.flatnonzero(mine & ~communicates(answers, kernels))
    middle = late.filter(pl.col("process") != worst["process"])["computation_time"].median()
    total = worst["computation_time"]
    if not len(rows) or middle is None or not total:
        return None
    factor = min(as_int(middle) / total, 1.0)
    return Edit(kernels=(rows, np.full(len(rows), factor)))


DETECTOR = Detector(
    name="uneven_ranks",
    question="Do ranks wait for each other for 5 % of their time or more, and for which?",
    find=find,
    fires="{least} of the steps' time",
    needs_all_kernels=True,
    thresholds={"least": parameters.share("the least share of the time that ranks wait")},
    looks_at="stragglers(): of each collective that at least two ranks recorded, the rank that is in it for"
    " the shortest time came last. What the late rank does longer comes from the parts of steps(): computing,"
    " input, launches, its host, or its own waiting for others.",
    abstains="With one rank; when no collective is known on two ranks (no process groups recorded, or"
    " point-to-point transfers alone). The cause is not named where no part of the late rank's steps has at"
    " least half of its lateness more than the others'.",
    known_as=("PyTorch profiler plug-in: distributed view", "Holistic Trace Analysis: stragglers"),
)
