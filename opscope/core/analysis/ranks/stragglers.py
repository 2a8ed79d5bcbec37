"""Find the ranks that are late to collectives, the part of a collective that is waiting, and uneven work of
ranks.

All ranks leave a synchronising collective together, so the rank that is in it for the shortest time entered
last: the shortest time is the transfer of data, and the additional time of another rank is waiting. This
needs no common clock. Collectives come in pieces, with the rows of a process in one piece: those of 100,000
ranks do not fit into memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchange_pieces
from opscope.core.analysis.steps.step_times import processes_of, step_bounds, steps_at
from opscope.core.analysis.steps.warm_up import warm_up_of_job
from opscope.core.job.exchanges import GROUP, SYNCHRONISING
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import known_sum
from opscope.core.tables.gathered import Gathered
from opscope.core.tables.narrow import Pieces, each
from opscope.core.tables.trace import Trace

_ONE: Final = (*GROUP, "number")
#: Differences up to this (ns) come from clocks and launches, not from ranks.
NOISE: Final = 1_000
WAITS: Final = {
    "kind": pl.String,
    "group": pl.String,
    "members": pl.String,
    "size": pl.Int64,
    "calls": pl.Int64,
    "compared": pl.Int64,
    "time": pl.Int64,
    "waiting_time": pl.Int64,
    "transfer_time": pl.Int64,
    "uncompared_time": pl.Int64,
    "waiting_share": pl.Float64,
}
STRAGGLERS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "compared": pl.Int64,
    "last": pl.Int64,
    "last_share": pl.Float64,
    "lateness": pl.Int64,
    "median_lateness": pl.Float64,
    "max_lateness": pl.Int64,
    "caused_waiting": pl.Int64,
    "waiting_time": pl.Int64,
    "usual_kind": pl.String,
}
IMBALANCE: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "steps": pl.Int64,
    "median_step": pl.Float64,
    "median_work": pl.Float64,
    "over_mean": pl.Float64,
    "most_work": pl.Int64,
    "most_work_share": pl.Float64,
}


def collective_waits(exchanged: Pieces) -> pl.DataFrame:
    """Return one row per kind and group (``WAITS``; ns, all ranks added up), by time.

    ``waiting_time`` + ``transfer_time`` + ``uncompared_time`` = ``time``. ``uncompared_time`` is the time of
    calls for which no other rank's time is known; the first two are null if no call can be compared.
    ``exchanged`` is ``timed.exchanged``.
    """
    key, alone = ["kind", *GROUP], pl.col("shortest").is_null()
    sums = Gathered(
        key,
        pl.col("calls", "compared", "time", "uncompared_time").sum(),
        *map(known_sum, ("waiting_time", "transfer_time")),
    )
    for piece in exchanged():
        timed = piece.filter(pl.col("duration").is_not_null())
        sums.add(
            timed.group_by(key, maintain_order=True).agg(
                pl.len().cast(pl.Int64).alias("calls"),
                (~alone).sum().cast(pl.Int64).alias("compared"),
                pl.col("duration").sum().alias("time"),
                known_sum("waiting").alias("waiting_time"),
                known_sum("shortest").alias("transfer_time"),
                pl.col("duration").filter(alone).sum().alias("uncompared_time"),
            )
        )
    both = pl.col("waiting_time") + pl.col("transfer_time")
    return (
        sums.all()
        .with_columns(
            pl.when(both > 0).then(pl.col("waiting_time") / both).alias("waiting_share")
        )
        .cast(dict(WAITS.items()))
        .sort(
            "time", "kind", "group", "members",
            descending=[True, False, False, False], maintain_order=True,
        )
        .select(*WAITS)
    )  # fmt: skip


def stragglers(trace: Trace, exchanged: Pieces) -> pl.DataFrame:
    """Return one row per process (``STRAGGLERS``; ns) that took part in a collective that synchronises, by
    the waiting that it caused.

    ``last``: the number of collectives in which it alone was last; ``last_share``: their share of those
    ``compared``. ``lateness``: how much later it came than the first rank, summed over those in which it was
    last; if a rank waits in several collectives at once, the time counts once (``_once``).
    ``caused_waiting``: the waiting of all other ranks in those collectives. A collective in which no rank
    waited longer than a microsecond has no last rank. Only collectives of which the times of at least two
    ranks are known are compared.
    """
    last = pl.col("last")
    ranks = trace["processes"].select("process", "rank").unique("process", keep="first")
    tables = [
        marked.group_by("process", maintain_order=True).agg(
            pl.len().cast(pl.Int64).alias("compared"),
            last.sum().cast(pl.Int64).alias("last"),
            last.mean().alias("last_share"),
            pl.col("late").filter(last).sum().alias("lateness"),
            pl.col("late").filter(last).median().alias("median_lateness"),
            pl.col("late").filter(last).max().alias("max_lateness"),
            pl.col("caused").filter(last).sum().alias("caused_waiting"),
            pl.col("waiting").sum().alias("waiting_time"),
            pl.col("kind").filter(last).sort().mode().sort().first().alias("usual_kind"),
        )
        for marked in late_rows(each(exchanged, _for_stragglers))()
    ]
    return (
        pl.concat(tables)
        .join(ranks, on="process", how="left", maintain_order="left")
        .cast(dict(STRAGGLERS.items()), strict=False)
        .sort("caused_waiting", "process", descending=[True, False])
        .select(*STRAGGLERS)
    )


def _for_stragglers(exchanged: pl.DataFrame) -> pl.DataFrame:
    """Return the needed columns only, because each pass over the pieces computes all of them again."""
    own = ["own"] if "own" in exchanged.columns else []
    return exchanged.select(
        "process", "kind", *_ONE, "start", "duration", "shortest", "waiting", *own
    )


def step_stragglers(profile: Answers) -> pl.DataFrame:
    """Return ``stragglers`` for the collectives that ended in a step, leaving out warm-up if there are
    other steps; for all collectives if no steps are known. A rank whose steps begin later than those of
    others is not late because of that: its lateness is limited to the time of its own steps so far."""
    table = profile.of(step_bounds).filter(pl.col("step").is_not_null())
    kept = table.filter(pl.col("seen") & ~warm_up_of_job(table))
    judged = table if kept.is_empty() else kept
    if judged.is_empty():
        return stragglers(profile.trace, profile.of(exchange_pieces))
    step_of = steps_at(judged)
    first = judged.group_by("process").agg(pl.col("start").min().alias("first"))

    def within(piece: pl.DataFrame) -> pl.DataFrame:
        end = piece["end"].fill_null(0).to_numpy() - 1
        inside = step_of(processes_of(piece["process"]), end) >= 0
        kept = piece.filter(pl.Series(inside, dtype=pl.Boolean))
        own = (pl.col("start") - pl.col("first")).clip(lower_bound=0).alias("own")
        return kept.join(first, on="process", how="left", maintain_order="left").with_columns(own)

    return stragglers(profile.trace, each(profile.of(exchange_pieces), within))


def waits_for(exchanged: Pieces) -> pl.DataFrame:
    """Return one row per pair of processes: ``late``, which alone entered last, ``process``, which waited
    for it, and its ``waiting`` (ns). The waiting for a ``late`` process adds up to its ``caused_waiting``.
    """
    marked, instance = late_rows(each(exchanged, _for_stragglers)), list(_ONE)
    late = pl.concat(
        piece.filter("last").select(*instance, pl.col("process").alias("late"))
        for piece in marked()
    )
    return pl.concat(
        piece.drop("late")
        .join(late, on=instance, how="left", nulls_equal=True, maintain_order="left")
        .filter(pl.col("late").is_not_null() & ~pl.col("last"))
        .group_by("late", "process", maintain_order=True)
        .agg(pl.col("waiting").sum().cast(pl.Int64))
        for piece in marked()
    )


def late_rows(exchanged: Pieces) -> Pieces:
    """Return the comparable collectives of each rank, with ``late`` (ns: the longest waiting in it, so how
    much the last rank came after the first), ``caused`` (ns: all waiting in it) and ``last`` (the process
    that alone was last)."""
    instance, compared = list(_ONE), each(exchanged, _compare)
    shortest = pl.col("duration") == pl.col("shortest")
    sums = Gathered(instance, pl.col("longest").max(), pl.col("caused", "least").sum())
    for piece in compared():
        sums.add(
            piece.group_by(instance).agg(
                pl.col("waiting").max().alias("longest"),
                pl.col("waiting").sum().alias("caused"),
                shortest.sum().cast(pl.Int64).alias("least"),
            )
        )
    sums_of_all = sums.all()

    def made() -> Iterator[pl.DataFrame]:
        for piece in compared():
            late = pl.col("longest")
            if "own" in piece.columns:
                late = pl.min_horizontal(late, "own")
            yield (
                piece.join(
                    sums_of_all, on=instance, how="left", nulls_equal=True, maintain_order="left"
                )
                .with_columns(late.alias("late"))
                .with_columns(
                    (shortest & (pl.col("least") == 1) & (pl.col("late") > NOISE)).alias("last")
                )
                .drop("longest", "least")
            )

    return made


def _compare(exchanged: pl.DataFrame) -> pl.DataFrame:
    kind = pl.col("kind").cast(pl.String)
    return _once(
        exchanged.filter(
            kind.is_in(SYNCHRONISING).fill_null(False) & pl.col("shortest").is_not_null()
        ).with_columns(kind.alias("kind"))
    )


def _once(exchanged: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives by process and time, with ``waiting`` reduced by the simultaneous waiting in
    collectives that the rank entered before: two buckets of gradients in flight wait only once for one late
    rank.

    A rank waits from its entry into a collective. The waiting of a rank never adds up to more than its time.
    """
    until = (pl.col("start") + pl.col("waiting").fill_null(0)).cum_max().shift(1).over("process")
    end = pl.col("start") + pl.col("waiting")
    begin = pl.max_horizontal("start", until.fill_null(pl.col("start")))
    rows = exchanged.sort("process", "start", maintain_order=True)
    return rows.with_columns((end - begin).clip(lower_bound=0).alias("waiting"))


def work_by_step(table: pl.DataFrame, exchanged: Pieces) -> pl.DataFrame:
    """Return the steps that several processes have, each once, with ``work`` (ns): a step's time minus the
    waiting in the collectives that ended in it.

    It is null in a step in which a rank has a collective whose waiting is not known. ``table`` is
    ``step_times.steps_of``, ``exchanged`` ``timed.exchanged``.
    """
    rows = table.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    step_of = steps_at(table)
    sums = Gathered(["row"], pl.col("waiting").sum(), pl.col("unsure").any())
    for piece in exchanged():
        timed = _once(piece.filter(pl.col("end").is_not_null()))
        row = step_of(processes_of(timed["process"]), timed["end"].to_numpy() - 1)
        sums.add(
            timed.select("waiting", pl.Series("row", np.asarray(row, np.int64)))
            .filter(pl.col("row") >= 0)
            .group_by("row")
            .agg(
                pl.col("waiting").sum(),
                pl.col("waiting").is_null().any().alias("unsure"),
            )
        )
    waits = sums.all()
    several = pl.col("process").n_unique().over("step") > 1
    once = pl.len().over("process", "step") == 1
    work_of_steps = (
        rows.filter(pl.col("step").is_not_null())
        .join(waits, on="row", how="left")
        .filter(once)
        .filter(several)
    )
    unsure = pl.col("unsure").fill_null(False).any().over("step")
    work = pl.col("time") - pl.col("waiting").fill_null(0)
    return work_of_steps.with_columns(pl.when(~unsure).then(work.clip(lower_bound=0)).alias("work"))


def step_imbalance(table: pl.DataFrame, exchanged: Pieces) -> pl.DataFrame:
    """Return one row per process (``IMBALANCE``; ns), the one with most work first: how its steps compare
    with the same steps of the others.

    Steps are compared by number; a number that a process has twice is left out. Work is a step's time less
    the waiting in the collectives that ended in it: ranks that synchronise have equal steps and unequal
    work. It is null in a step in which a rank has a collective whose waiting is not known.
    ``over_mean``: median over the steps of work / mean work of the processes in that step.
    ``table`` is ``step_times.steps_of``, ``exchanged`` ``timed.exchanged``.
    """
    work_of_steps = work_by_step(table, exchanged)
    if work_of_steps.is_empty():
        return pl.DataFrame(schema=IMBALANCE)
    most = pl.col("work") == pl.col("work").max().over("step")
    work_of_steps = work_of_steps.with_columns(
        (pl.col("work") / pl.col("work").mean().over("step")).alias("over"),
        pl.when(pl.col("work").is_not_null())
        .then(most & (most.sum().over("step") == 1))
        .alias("most"),
    )
    judged = pl.col("most").is_not_null()
    return (
        work_of_steps.group_by("process", "rank")
        .agg(
            pl.len().cast(pl.Int64).alias("steps"),
            pl.col("time").median().alias("median_step"),
            pl.col("work").median().alias("median_work"),
            pl.col("over").median().alias("over_mean"),
            pl.when(judged.any()).then(pl.col("most").sum()).cast(pl.Int64).alias("most_work"),
            pl.col("most").mean().alias("most_work_share"),
        )
        .cast(dict(IMBALANCE.items()))
        .sort("median_work", "process", descending=[True, False], nulls_last=True)
        .select(*IMBALANCE)
    )


def answer(profile: Answers) -> pl.DataFrame:
    """Which ranks enter collectives last, how often, and how long the others wait for them."""
    return stragglers(profile.trace, profile.of(exchange_pieces))


def answer_waits(profile: Answers) -> pl.DataFrame:
    """The time in collectives as waiting and transfer, by kind and group; all ranks added up."""
    return collective_waits(profile.of(exchange_pieces))


def answer_imbalance(profile: Answers) -> pl.DataFrame:
    """How the work of each rank in a step compares with the work of the others in the same step."""
    return step_imbalance(profile.of(step_bounds), profile.of(exchange_pieces))


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "stragglers()",
                "one row per process, by the waiting that it caused",
                columns(
                    "process rank compared last last_share lateness median_lateness "
                    "max_lateness caused_waiting waiting_time usual_kind",
                    """
                    compared: count: collectives of this process of which another rank's time is known
                    last_share: fraction: last / compared
                    median_lateness: ns: median of lateness over the collectives that it entered last
                    max_lateness: ns: largest lateness in one collective
                    waiting_time: ns: its own waiting for ranks that entered later
                    usual_kind: text: the kind of collective that it most often entered last
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="stragglers",
                title="Stragglers",
                empty=(
                    "no collective in which the times of two ranks are known: load the traces of all "
                    "ranks together"
                ),
            ),
        ),
    ),
    Question(
        answer=answer_waits,
        frames=(
            Frame(
                "collective_waits()",
                "one row per kind of collective and group, by time",
                columns(
                    "kind group members size calls compared time waiting_time transfer_time "
                    "uncompared_time waiting_share",
                    """
                    kind: text: the kind of collective
                    calls: count: collectives, of each rank, whose time is known
                    time: ns: times of all ranks in them added up
                    uncompared_time: ns: time in collectives of which no other rank's time is known
                    waiting_share: fraction: waiting_time / (waiting_time + transfer_time)
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="collective_waits",
                title="Waiting in collectives",
                empty="no collective whose time is known in this profile",
            ),
        ),
    ),
    Question(
        answer=answer_imbalance,
        frames=(
            Frame(
                "step_imbalance()",
                "one row per process, the one with most work first",
                columns(
                    "process rank steps median_step median_work over_mean most_work most_work_share",
                    """
                    steps: count: steps that another process has too
                    median_step: ns: median time of its steps
                    most_work: count: steps in which it alone had the most work
                    most_work_share: fraction: most_work / the steps in which work is known
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="step_imbalance",
                title="Step imbalance",
                empty="no step that two processes have in common: load the traces of all ranks together",
            ),
        ),
    ),
)
