"""Collectives that ranks leave at different times, by more than their clocks explain."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchange_pieces
from opscope.core.analysis.ranks.distributed import machine_errors
from opscope.core.analysis.ranks.rank_names import rank_names
from opscope.core.analysis.ranks.stragglers import NOISE
from opscope.core.job.exchanges import GROUP, SYNCHRONISING
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.gathered import Gathered
from opscope.core.tables.narrow import Pieces, each

ENDS: Final = {
    "kind": pl.String,
    "group": pl.String,
    "members": pl.String,
    "size": pl.Int64,
    "compared": pl.Int64,
    "median_apart": pl.Float64,
    "max_apart": pl.Int64,
    "clock_error": pl.Int64,
    "differing": pl.Int64,
    "process": pl.Int32,
    "rank": pl.Int32,
    "left_last": pl.Int64,
    "reason": pl.String,
}
UNKNOWN: Final = "the error of a machine's clock is not known"
NOBODY: Final = "no one rank leaves last most often"
_ONE: Final = (*GROUP, "number")


def collective_ends(exchanged: Pieces, errors: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind and group (``ENDS``; ns), those whose ends differ most first.

    ``exchanged``: ``timed.exchanged`` of all ranks on one clock, in pieces, with each process in one piece;
    ``errors``: process, machine and ``error_ns``, the error of the machine's clock; ``ranks``: process and
    rank. ``clock_error``: the most by which two ranks' clocks may differ (0 on one machine). ``differing``:
    collectives whose ends differ by more than that and by more than a microsecond. Further columns: the rank
    that most often leaves last of these collectives, and how often.
    """
    key, instance = ["kind", *GROUP], list(_ONE)
    first_errors = errors.unique("process", keep="first").with_columns(
        pl.col("machine").cast(pl.String).rank("dense").cast(pl.Int64).alias("place")
    )
    ended = each(exchanged, lambda piece: _end(piece, first_errors))
    kinds, last_members = Gathered([*key, "number"]), _gather()
    for piece in ended():
        kinds.add(piece.select(*key, "number").unique(maintain_order=True))
        last_members.add(
            piece.group_by(instance).agg(
                pl.col("process").n_unique().cast(pl.Int64).alias("ranks"),
                pl.col("place").min().alias("low"),
                pl.col("place").max().alias("high"),
                pl.col("end").min().alias("first"),
                pl.col("end").max().alias("end"),
                pl.col("error_ns").is_null().any().alias("unknown"),
                *_two(pl.col("error_ns").drop_nulls()),
            )
        )
    error = (
        pl.when(pl.col("low") == pl.col("high"))
        .then(0)
        .when("unknown")
        .then(None)
        .otherwise(pl.col("error") + pl.col("next_error").fill_null(0))
    )
    judged = (
        last_members.all()
        .filter(pl.col("ranks") > 1)
        .select(
            *instance,
            "end",
            (pl.col("end") - pl.col("first")).alias("apart"),
            error.alias("clock_error"),
        )
    )
    far = pl.col("apart") > pl.max_horizontal(pl.col("clock_error"), pl.lit(NOISE))
    judged = judged.with_columns(
        pl.when(pl.col("clock_error").is_not_null()).then(far).alias("differs")
    )
    if judged.is_empty():
        return pl.DataFrame(schema=ENDS)
    sums = (
        kinds.all()
        .join(judged, on=instance, nulls_equal=True)
        .group_by(key)
        .agg(
            pl.len().alias("compared"),
            pl.col("apart").median().alias("median_apart"),
            pl.col("apart").max().alias("max_apart"),
            pl.when(pl.col("clock_error").is_null().any().not_())
            .then(pl.col("clock_error").max())
            .alias("clock_error"),
            pl.when(pl.col("differs").count() > 0).then(pl.col("differs").sum()).alias("differing"),
        )
    )
    differing = judged.filter("differs").select(*instance, "end")
    most = pl.col("left_last") == pl.col("left_last").max().over(key)
    latest = pl.concat(
        piece.join(differing, on=[*instance, "end"], how="semi", nulls_equal=True)
        .group_by(*key, "process")
        .agg(pl.len().alias("left_last"))
        .filter(most)
        for piece in ended()
    )
    latest = latest.filter(most).filter(pl.len().over(key) == 1)
    ends = sums.join(latest, on=key, how="left", nulls_equal=True).join(
        ranks.unique("process", keep="first").select("process", "rank"), on="process", how="left"
    )
    return (
        ends.with_columns(
            pl.when(pl.col("clock_error").is_null())
            .then(pl.lit(UNKNOWN))
            .when((pl.col("differing") > 0) & pl.col("process").is_null())
            .then(pl.lit(NOBODY))
            .alias("reason")
        )
        .cast(dict(ENDS.items()))
        .sort(
            "differing", "max_apart", *key, descending=[True, True, *[False] * len(key)],
            nulls_last=True,
        )
        .select(*ENDS)
    )  # fmt: skip


def _end(exchanged: pl.DataFrame, errors: pl.DataFrame) -> pl.DataFrame:
    """Return the ends that can be compared, with the ``place`` and the clock error of each rank's machine."""
    kind = pl.col("kind").cast(pl.String)
    rows = exchanged.filter(
        kind.is_in(SYNCHRONISING).fill_null(False)
        & pl.col("number").is_not_null()
        & pl.col("end").is_not_null()
    ).select("process", *_ONE, "end", kind.alias("kind"))
    return rows.join(errors, on="process", how="left", maintain_order="left").with_columns(
        pl.col("place").fill_null(0)
    )


def _gather() -> Gathered:
    """Return the aggregation of each collective's ends; its two largest errors bound how far clocks may be
    apart."""
    return Gathered(
        list(_ONE),
        pl.col("ranks").sum(),
        pl.col("low", "first").min(),
        pl.col("high", "end").max(),
        pl.col("unknown").any(),
        *_two(pl.col("error").append(pl.col("next_error")).drop_nulls()),
    )


def _two(errors: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    ordered = errors.sort(descending=True)
    return ordered.first().alias("error"), ordered.slice(1).first().alias("next_error")


def answer(profile: Answers) -> pl.DataFrame:
    """Collectives that ranks leave at different times, by more than their clocks explain."""
    errors = machine_errors(profile.trace)
    return collective_ends(profile.of(exchange_pieces), errors, profile.of(rank_names))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "collective_ends()",
            "one row per kind of collective and group; those whose ends differ most first",
            columns(
                "kind group members size compared median_apart max_apart clock_error "
                "differing process rank left_last reason",
                """
                kind: text: the kind of collective
                group: text: name of the process group
                compared: count: collectives of which the ends of several ranks are known
                median_apart: ns: median distance of the last rank's end from the first's
                max_apart: ns: largest distance of the last rank's end from the first's
                clock_error: ns: how far the clocks of two of the ranks may be apart at most; 0 on one
                    machine; null if not known
                differing: count: collectives whose ends are farther apart than clock_error and a
                    microsecond; null if the error is not known
                process: number: the process that left last most often, of those that differ
                rank: number: the rank that left last most often, of those that differ
                left_last: count: how many of these it left last
                reason: text: why a value is null; null if none is
                """,
            ),
        ),
    ),
    reports=(
        Report(
            name="collective_ends",
            title="Ends of collectives",
            empty="no collective in which the ends of two ranks are known",
        ),
    ),
)
