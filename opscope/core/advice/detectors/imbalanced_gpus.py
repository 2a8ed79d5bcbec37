"""Devices of one job that compute for very different times."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.communicated import as_int, communicates
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.saying import framework, ms, share
from opscope.core.dialects.launches import SHARED_IDS
from opscope.core.question import parameters
from opscope.core.tables.trace import UNRELATED

#: By this part of the window the busiest device must compute longer than the mean,
LEAST: Final = 0.05
#: and by this part of the mean.
UNEVEN: Final = 0.1
_COMPUTES: Final = (
    "computation",
    "computation and communication",
    "computation and copies",
    "all three",
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding if the busiest device computes much longer than the mean of all devices."""
    overlap = answers.overlap()
    if overlap.is_empty():
        if answers.cpu_only and len(answers.trace["ranges"]):
            return []
        return CannotTell("no work of a device was recorded")
    reasons = overlap["reason"].drop_nulls()
    if len(reasons):
        return CannotTell(f"{reasons[0]}, so that how long each device was busy is not known")
    keys = ["process", "device"]
    computing = overlap.filter(pl.col("running_work").is_in(_COMPUTES))
    table = (
        computing.group_by(keys)
        .agg(pl.col("time").sum().alias("computing"))
        .sort("computing", *keys, descending=[True, False, False])
    )
    devices = table.select("device").n_unique() > 1 or table["process"].n_unique() > 1
    if len(table) < 2 or not devices:
        world = as_int(answers.trace["processes"]["world_size"].max())
        several = world > 1
        if several or len(answers.collectives()):
            of = f"of a job of {world} ranks" if several else "of a job with collectives"
            return CannotTell(
                f"the profile holds one device {of}: give the captures of several ranks together"
            )
        return []
    if not _one_job(answers):
        return CannotTell(
            "several processes ran work on devices, and nothing shows that they are one job: no ranks and"
            " no collectives were recorded"
        )
    if not table["computing"].max():
        return CannotTell("the profile holds no computation of any device")
    table = table.join(
        answers.device_use(), on=keys, how="left", nulls_equal=True, maintain_order="left"
    )
    window = as_int(table["window"].max())
    mean = as_int(table["computing"].sum()) / len(table)
    most = int(table["computing"][0])
    over = most - mean
    if over < least * window or over < UNEVEN * mean:
        return []
    return [_finding(answers, table, window, mean)]


def _one_job(answers: Answers) -> bool:
    # it is not known whose work a device ran, or the user says that the processes are of several jobs
    if answers.trace.origin.get(SHARED_IDS) or answers.trace.origin.get(UNRELATED):
        return False
    processes = answers.trace["processes"]
    kernels = answers.trace["kernels"]
    if kernels["process"].n_unique() < 2:
        return True
    ranked = processes["rank"].drop_nulls().n_unique() > 1
    return bool(ranked) or len(answers.collectives()) > 0


def _finding(answers: Answers, table: pl.DataFrame, window: int, mean: float) -> Finding:
    most, least = table.row(0, named=True), table.row(-1, named=True)
    over = int(most["computing"] - mean)
    said = "; ".join(
        f"{_name(row)}: {ms(row['computing'])}, {row['kernels'] or 0:,} kernels"
        for row in table.head(8).rows(named=True)
    )
    if len(table) > 8:
        said += f"; and {len(table) - 8:,} other devices"
    return Finding(
        what=f"{_name(most)} computes for {ms(most['computing'])}, {_name(least)} for"
        f" {ms(least['computing'])} of {ms(window)}: the busiest device {share(over, mean)} more than the"
        f" mean of {len(table):,} devices",
        evidence=said,
        recommendation=_recommendation(framework(answers)),
        time=over,
        saving_least=0,
        saving_most=over,
        reasoning="overlap(): computation, alone and beside communication and copies, by device. Time in"
        " collectives is left out: a device that waits in one is busy, and does no work. Evenly spread, the"
        " busiest device would compute the mean: at most the difference is saved, at least nothing, as the"
        " others may set the pace.",
        confidence="medium",
        rows=table.select(
            *("process", "device"),
            pl.col("kernels").alias("count"),
            pl.col("computing").alias("time"),
        ),
        edit=_edit(answers, table, mean),
    )


def _edit(answers: Answers, table: pl.DataFrame, mean: float) -> Edit | None:
    """Return the edit in which each device computes at most the mean. For several processes there is none: a
    replay would not shorten their waits in collectives."""
    if table["process"].n_unique() > 1:
        return None
    kernels = answers.kernels(categories=True)
    computes = ~communicates(answers, kernels)
    rows, factors = [], []
    for device, computing in table.select("device", "computing").rows():
        if computing > mean:
            mine = (kernels["device"] == device).fill_null(False).to_numpy()
            rows.append(np.flatnonzero(mine & computes))
            factors.append(np.full(len(rows[-1]), mean / computing))
    return Edit(kernels=(np.concatenate(rows), np.concatenate(factors)))


def _name(row: dict[str, object]) -> str:
    return f"device {row['device']} of process {row['process']}"


def _recommendation(used: str | None) -> str:
    if used == "torch":
        return (
            "Give each rank the same share: DistributedSampler(…, drop_last=True) with batches of equal"
            " tokens, pipeline stages cut by time and not by number of layers, loss and metrics on every"
            " rank instead of on one."
        )
    if used == "mindspore":
        return "Cut pipeline stages by time: cell.pipeline_stage = N, moved where the busiest stage is."
    return (
        "Spread the work by measured time: equal batches for each device, pipeline stages cut by time, no"
        " extra work on one device."
    )


DETECTOR = Detector(
    name="imbalanced_gpus",
    question="Does one device of the job compute much longer than the others?",
    find=find,
    fires="{least} of the window and 10 % of the mean",
    thresholds={
        "least": parameters.share(
            "the least share of the window by which a GPU does more than the mean"
        )
    },
    looks_at="overlap(), by process and device: the time in which kernels other than those of collectives"
    " ran."
    " It fires where the busiest device computes longer than the mean by 10 % of it and 5 % of the window.",
    abstains="With one device of a job of several ranks; when nothing shows that several processes are one"
    " job; when the source has totals without times; when no device work was recorded.",
    known_as=("DLProf: Imbalanced GPU",),
)
