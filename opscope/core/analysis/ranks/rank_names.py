"""The processes of a profile by rank, shared by the questions about ranks."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.windows import event_bounds


def rank_ends(profile: Answers) -> pl.DataFrame:
    """Process, rank, and ``until``, when the process's recording ended."""
    ends = profile.of(event_bounds).select("process", pl.col("end").alias("until"))
    ranks = profile.trace["processes"].select("process", "rank").unique("process", keep="first")
    return ranks.join(ends, on="process", how="full", coalesce=True)


def rank_names(profile: Answers) -> pl.DataFrame:
    """The rank of each process."""
    return profile.of(rank_ends).select("process", "rank")
