"""Decide which steps at the beginning of a process are warm-up: slower than the later ones, and soon over.

The later steps are the second half. The first steps are warm-up as long as each is an outlier by the modified
z-score (``outliers``) and takes a fifth longer than the later steps' median. If more than a third of the
steps would be warm-up, the process is gradually getting faster, and no step is warm-up. With fewer than five
steps, none is judged.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.steps.outliers import FEWEST, NORMAL, SCORE
from opscope.core.tables.intervals import Ints

#: How far above the median of the later steps a warm-up step is at least.
LEAST_ABOVE: Final = 0.2
#: Largest part of the steps that is warm-up.
MOST: Final = 1 / 3


def warm_up(table: pl.DataFrame) -> pl.Series:
    """Return whether each step (``process``, ``step``, ``start``, ``time``, ``seen``) is warm-up; null: not
    judged. Steps are compared with those of their process that were recorded in the same way."""
    judged = np.zeros(len(table), bool)
    warm = np.zeros(len(table), bool)
    numbered = table.with_row_index("row").filter(pl.col("step").is_not_null())
    for part in numbered.sort("start").partition_by("process"):
        seen = part["seen"].fill_null(True).to_numpy()
        alike = seen == seen[0]
        if np.count_nonzero(alike) < FEWEST:
            continue
        first = warm_ups(part["time"].to_numpy()[alike])
        rows = part["row"].to_numpy()
        judged[rows] = True
        warm[rows[:first]] = alike[:first]
    return pl.select(pl.when(pl.Series(judged)).then(pl.Series(warm)).alias("warm_up")).to_series()


def warm_up_of_job(table: pl.DataFrame) -> pl.Series:
    """Return whether each step is warm-up on any process that has it, because ranks wait for each other.

    A process that would be left without steps is judged by itself.
    """
    rows = table.select("process", "step", warm_up(table).fill_null(False).alias("own"))
    rows = rows.with_columns(pl.col("own").any().over("step").alias("anywhere"))
    alone = pl.col("anywhere").all().over("process")
    return rows.select(
        pl.when(alone).then("own").otherwise("anywhere").alias("warm_up")
    ).to_series()


def warm_ups(time: Ints) -> int:
    """Return how many of the first steps are warm-up; ``time`` (ns) is each step's, in order."""
    later = time[len(time) // 2 :]
    middle = float(np.median(later))
    spread = float(np.median(np.abs(later - middle)))
    least = middle + max(LEAST_ABOVE * middle, SCORE * spread / NORMAL)
    first = int(np.argmin(np.append(time > least, False)))
    return first if first <= MOST * len(time) else 0
