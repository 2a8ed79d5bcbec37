"""The times of collectives over all ranks: how long each rank was in a collective, and how long it waited
there."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from opscope.core.attribution.attribute import Attribution
from opscope.core.job.clocks import one_clock
from opscope.core.job.exchanges import exchanges
from opscope.core.job.numbering import numbers
from opscope.core.tables.gathered import Gathered, one_piece
from opscope.core.tables.narrow import Narrow, Pieces, whole


def exchanged(attribution: Attribution) -> pl.DataFrame:
    """Return ``exchanges`` matched across processes, with ``duration`` and ``waiting`` (ns).

    ``waiting``: a rank's time in a collective minus the shortest time of any rank; null if no other
    rank's time in it is known.
    """
    return timed(exchanges(attribution), one_clock(attribution.trace))


def timed(table: pl.DataFrame, same_clock: bool) -> pl.DataFrame:
    """Return what ``exchanged`` returns, from the table of ``exchanges``."""
    return whole(timed_in(one_piece(table), same_clock))


def timed_in(pieces: Pieces, same_clock: bool) -> Pieces:
    """Return ``exchanged`` for the exchanges of a job in pieces, as the same number of pieces."""
    instance = ["whole", "number"]
    duration = pl.col("end") - pl.col("start")
    told, sums = Narrow(), Gathered(instance, pl.col("many").sum(), pl.col("shortest").min())
    for piece, numbered in zip(pieces(), numbers(pieces, same_clock), strict=True):
        told.add(numbered)
        times = numbered.with_columns(piece.select(duration.alias("duration"))["duration"])
        sums.add(
            times.filter(pl.col("number").is_not_null())
            .group_by(instance)
            .agg(
                pl.col("duration").count().cast(pl.Int64).alias("many"),
                pl.col("duration").min().alias("shortest"),
            )
        )
    shortest = sums.all().filter(pl.col("many") > 1).drop("many")

    def made() -> Iterator[pl.DataFrame]:
        for piece, numbered in zip(pieces(), told.parts(), strict=True):
            least = numbered.join(shortest, on=instance, how="left", maintain_order="left")
            yield piece.with_columns(
                numbered["number"], duration.alias("duration"), least["shortest"]
            ).with_columns((pl.col("duration") - pl.col("shortest")).alias("waiting"))

    return made
