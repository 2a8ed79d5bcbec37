"""Why ranks enter collectives last: longer computing, their input, late launches, their program, or a
wait. || The rank that came last is compared with the one that came first, over the time since both left
the previous collective. The differences between their activities add up to the delay, so the largest
difference is the cause.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ranks.arrivals import PARTS, arrival_pieces
from opscope.core.analysis.ranks.rank_names import rank_names
from opscope.core.analysis.ranks.stragglers import late_rows
from opscope.core.job.exchanges import GROUP
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.gathered import Gathered
from opscope.core.tables.narrow import Pieces, each

CAUSES: Final = {
    "wait_part": "an earlier wait",
    "compute_part": "local compute",
    "input_part": "input",
    "launch_part": "launch",
    "outside_part": "outside any op",
}
FIRST: Final = "the recording has no collective of the group before it"
APART: Final = "the ranks' collectives before it are not the same one"
LEFT_APART: Final = "the ranks did not leave the collective before it together"
UNSEEN: Final = "what a rank did before it was not recorded"
MIXED: Final = "no one thing makes up half of the lateness"
LATE_CAUSES: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "cause": pl.String,
    "last": pl.Int64,
    "lateness": pl.Int64,
    "caused_waiting": pl.Int64,
    "caused_share": pl.Float64,
    "more": pl.Int64,
    "groups": pl.Int64,
    "reason": pl.String,
}
_ONE: Final = (*GROUP, "number")


def late_causes(arrived: Pieces, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process and cause of its coming last (``LATE_CAUSES``; ns), by the waiting caused.

    ``arrived``: ``arrivals`` of all ranks, in pieces, with ``number``, ``duration``, ``shortest`` and
    ``waiting``. ``ranks``: process and rank. ``more``: how much longer it spent on the cause than the first
    rank. ``cause`` is null, with a ``reason``, if the trace does not show it.
    """
    instance = list(_ONE)
    late = late_rows(each(arrived, _after))
    firsts, lasts = Gathered(instance, pl.col("before", "since", *PARTS).first()), []
    for piece in late():
        lasts.append(piece.filter("last"))
        firsts.add(
            piece.filter(pl.col("waiting") == pl.col("late"))
            .unique(instance, keep="first", maintain_order=True)
            .select(*instance, "before", "since", *PARTS)
        )
    both = pl.concat(lasts).join(firsts.all(), on=instance, suffix="_first", nulls_equal=True)
    if both.is_empty():
        return pl.DataFrame(schema=LATE_CAUSES)
    gaps = [pl.col(name) - pl.col(f"{name}_first") for name in PARTS]
    both = both.with_columns(gap.alias(name) for gap, name in zip(gaps, PARTS, strict=True))
    most = pl.max_horizontal(*PARTS)
    which = pl.coalesce(
        pl.when(pl.col(name) == most).then(pl.lit(cause)) for name, cause in CAUSES.items()
    )
    clear = 2 * most >= pl.col("late")
    longer = pl.col("since") - pl.col("since_first")
    reason = (
        pl.when(pl.col("since").is_null() | pl.col("since_first").is_null())
        .then(pl.lit(FIRST))
        .when(pl.col("before").ne_missing(pl.col("before_first")))
        .then(pl.lit(APART))
        .when(2 * (longer - pl.col("late")).abs() > pl.col("late"))
        .then(pl.lit(LEFT_APART))
        .when(pl.any_horizontal(pl.col(name).is_null() for name in PARTS))
        .then(pl.lit(UNSEEN))
        .when(~clear)
        .then(pl.lit(MIXED))
    )
    both = both.with_columns(reason.alias("reason")).with_columns(
        pl.when(pl.col("reason").is_null()).then(which).alias("cause"),
        pl.when(pl.col("reason").is_null()).then(most).alias("more"),
    )
    causes = both.group_by("process", "cause", "reason").agg(
        pl.len().alias("last"),
        pl.col("late").sum().alias("lateness"),
        pl.col("caused").sum().alias("caused_waiting"),
        pl.when(pl.col("more").count() > 0).then(pl.col("more").sum()).alias("more"),
        pl.struct(*GROUP).n_unique().alias("groups"),
    )
    total = pl.col("caused_waiting").sum()
    return (
        causes.join(ranks.unique("process", keep="first"), on="process", how="left")
        .with_columns(
            pl.when(total > 0).then(pl.col("caused_waiting") / total).alias("caused_share")
        )
        .cast(dict(LATE_CAUSES.items()))
        .sort(
            "caused_waiting", "process", "cause", "reason", descending=[True, False, False, False]
        )
        .select(*LATE_CAUSES)
    )


def _after(arrived: pl.DataFrame) -> pl.DataFrame:
    """Return the needed columns of the rows, and ``before``, the number of the group's previous
    collective."""
    before = pl.col("number").shift(1).over("process", *GROUP).alias("before")
    return arrived.select(
        *("process", "kind", *_ONE, "start", "duration", "shortest", "waiting", "since"),
        *(*PARTS, before),
    )


def answer(profile: Answers) -> pl.DataFrame:
    """Why ranks enter collectives last: local compute, input, launch, time outside any op, or a wait.

    A rank that came last is compared with the one that came first, over the time since both left the
    group's previous collective; the activity with the largest additional time is the cause.
    """
    return late_causes(profile.of(arrival_pieces), profile.of(rank_names))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "late_causes()",
            (
                "one row per process and cause of its entering collectives last, by the waiting "
                "that it caused"
            ),
            columns(
                "process rank cause last lateness caused_waiting caused_share more groups reason",
                """
                last: count: collectives that it alone entered last, for this cause
                caused_share: fraction: caused_waiting / that of all rows
                more: ns: how much longer than the first rank it did what is the cause, since the group's
                    collective before
                groups: count: process groups of these collectives
                reason: text: why the cause is not known
                """,
            ),
        ),
    ),
    reports=(
        Report(
            name="late_causes",
            title="Why ranks are late",
            empty="no collective with a last rank: load the traces of all ranks together",
        ),
    ),
)
