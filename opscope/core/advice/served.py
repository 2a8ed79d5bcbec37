"""The engine steps of an inference server, as detectors of servers use them."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answers, CannotTell
from opscope.core.analysis.serving.step_sums import step_sums

NO_STEPS: Final = "nothing marks the engine steps of an inference server"
FEW: Final = "there are fewer than {least} decode steps after the warm-up"
#: Fewer steps than this show no regular behaviour of a server.
LEAST: Final = 5
#: The least part of the engine's time for which advice is worth reading.
WORTH: Final = 0.05
#: With a certainty below this, the kind of a step was guessed.
_SURE: Final = 0.5
UNSURE: Final = "the kinds of the engine steps were guessed: nothing marks them"


def engine(answers: Answers) -> pl.DataFrame | CannotTell:
    """Return the engine's steps with their sums (``step_sums``), or why there is no advice on them."""
    if answers.merged_of is not None:
        return CannotTell("a merged job keeps no single engine steps")
    steps = answers.of(step_sums)
    if steps.is_empty():
        return CannotTell(NO_STEPS)
    if steps.filter(pl.col("confidence") < _SURE).height:
        return CannotTell(UNSURE)
    if len(steady(steps)) < LEAST:
        return CannotTell(FEW.format(least=LEAST))
    return steps


def steady(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the decode steps without warm-up."""
    return steps.filter((pl.col("kind") == "decode") & ~pl.col("warm_up").fill_null(False))


def of_worst(rows: pl.DataFrame, name: str, *others: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the rows, and those of the other tables, that are of the process with the largest sum of the
    column ``name``: processes run side by side, so neither their counts nor their times are added up."""
    sums = rows.group_by("process").agg(pl.col(name).sum())
    worst = sums.sort(name, "process", descending=[True, False]).head(1)
    return [
        table.join(worst, on="process", how="semi", maintain_order="left")
        for table in (rows, *others)
    ]
