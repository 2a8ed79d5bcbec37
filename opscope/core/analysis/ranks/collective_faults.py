"""Collectives that some ranks did not enter or entered differently; and the last one that each rank
entered, as in a hang."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchange_pieces, exchanges
from opscope.core.analysis.ranks.rank_names import rank_ends
from opscope.core.job.clocks import one_clock
from opscope.core.job.exchanges import GROUP, POINT_TO_POINT, called
from opscope.core.job.numbering import matched
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.gathered import Gathered, one_piece
from opscope.core.tables.narrow import MOST, Pieces

_ONE: Final = (*GROUP, "number")
MISSING: Final = "not entered by all"
_WHAT: Final = {"kind": "kinds differ", "dtype": "dtypes differ", "bytes": "sizes differ"}
#: Kinds in which ranks may move different numbers of bytes.
_UNEVEN: Final = ("all_to_all", "gather", "scatter")
_TEXT: Final = 200
#: More names than this exceed the longest text, however short they are.
_NAMES: Final = _TEXT // 2
FAULTS: Final = {
    "fault": pl.String,
    "group": pl.String,
    "members": pl.String,
    "size": pl.Int64,
    "collective": pl.Int64,
    "kind": pl.String,
    "entered": pl.Int64,
    "completed": pl.Int64,
    "waited": pl.Int64,
    "missing_ranks": pl.String,
    "who": pl.String,
    "reason": pl.String,
}
LAST: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "group": pl.String,
    "members": pl.String,
    "size": pl.Int64,
    "calls": pl.Int64,
    "collective": pl.Int64,
    "kind": pl.String,
    "bytes": pl.Int64,
    "called": pl.Int64,
    "ended": pl.Int64,
    "waited": pl.Int64,
    "behind": pl.Int64,
    "waits_for": pl.String,
    "source": pl.String,
    "reason": pl.String,
}
NO_END: Final = "it did not end in the recording"
#: State of a collective that a flight recorder knows to be completed.
NO_END_TIME: Final = "it completed; when is not recorded"
NO_TIMES: Final = "only calls were recorded, not when they ran"


#: The columns that ``exchanges.called`` has in addition to those of ``exchanges``.
_TOLD: Final = {"completed": pl.Boolean, "source": pl.String}
#: Why collectives are not judged, in the order in which the reasons are checked.
ALONE: Final = "only one of the group's ranks is in the profile"
NO_GROUP: Final = "which group they are of is not recorded"
SHARED: Final = (
    "more processes than the group has ranks use its name, so that several groups share it"
)
NO_CALLS: Final = "they ran, and calls of collectives are not recorded"


def collective_faults(entered: Pieces, ranks: pl.DataFrame, ran: Pieces) -> pl.DataFrame:
    """Return one row per collective and its fault (``FAULTS``), by group and number; then one row per
    ``reason`` why others cannot be judged, with a null ``fault``.

    ``entered``: ``exchanges.called`` of all ranks, numbered; ``ranks``: ``process``, ``rank`` and ``until``,
    when its recording ended (ns); ``ran``: ``exchanges`` of all ranks. The first and the last are in pieces,
    with each process in one piece. Missing ranks are ranks of the group that are in the profile and did not
    call the collective. If another rank completed it, all ranks took part, so an absent call is outside the
    recording and not a fault. If it is unknown whether it was completed (only calls were recorded), a rank
    counts as missing only if it called a later collective of the group. ``waited`` (ns): how long the others
    had waited when the recording ended; if that is no longer than usual, it may just have ended too early.
    """
    return pl.concat([_find(entered, ranks), _untold(entered, ran)])


def _find(entered: Pieces, ranks: pl.DataFrame) -> pl.DataFrame:
    instance, group = list(_ONE), list(GROUP)
    there = Gathered(
        instance, pl.col("entered", "completed", "processes").sum(), pl.col("waited").max()
    )
    kinds = Gathered([*instance, "kind"], pl.col("many").sum())
    values = {column: Gathered([*instance, column]) for column in _WHAT}
    members = Gathered(group, pl.col("all").sum())
    for rows in _place(entered, ranks):
        there.add(
            rows.group_by(instance, maintain_order=True).agg(
                pl.len().cast(pl.Int64).alias("entered"),
                pl.col("done").sum().cast(pl.Int64).alias("completed"),
                pl.col("process").n_unique().cast(pl.Int64).alias("processes"),
                _waited().max().alias("waited"),
            )
        )
        kinds.add(rows.group_by(*instance, "kind").agg(pl.len().cast(pl.Int64).alias("many")))
        members.add(
            rows.group_by(group).agg(pl.col("process").n_unique().cast(pl.Int64).alias("all"))
        )
        for column, distinct in values.items():
            distinct.add(_valued(rows, column).select(*instance, column).unique())
    usual = (
        kinds.all()
        .drop_nulls("kind")
        .sort("many", "kind", descending=[True, False])
        .unique(instance, keep="first", maintain_order=True)
        .drop("many")
    )
    collectives = there.all().join(
        usual, on=instance, how="left", nulls_equal=True, maintain_order="left"
    )
    if collectives.is_empty():
        return pl.DataFrame(schema=FAULTS)
    lacking = (
        collectives.filter(pl.col("completed") == 0)
        .join(members.all(), on=group, how="left", nulls_equal=True)
        .filter(pl.col("processes") < pl.col("all"))
    )
    unlike = {
        column: distinct.all().filter(pl.len().over(instance) > 1).select(instance).unique()
        for column, distinct in values.items()
    }
    any_end = bool(collectives["completed"].sum())
    gone = Gathered([*instance, "rank_name"], pl.col("rank", "process").first())
    having = {
        column: Gathered([*instance, "value", "rank_name"], pl.col("rank", "process").first())
        for column in _WHAT
    }
    some = len(lacking) or any(map(len, unlike.values()))
    for rows in _place(entered, ranks) if some else ():
        if len(lacking):
            gone.add(_first_named(_gone(rows, lacking, any_end), instance, ranks))
        for column, distinct in having.items():
            if len(unlike[column]):
                mine = _valued(rows, column).join(
                    unlike[column], on=instance, how="semi", nulls_equal=True
                )
                distinct.add(
                    _first_named(mine.with_columns(_value(column)), [*instance, "value"], ranks)
                )
    faults = []
    if len(lacking):
        missing = (
            _by_rank(gone.all())
            .group_by(instance, maintain_order=True)
            .agg(_list("rank_name").alias("missing_ranks"))
        )
        faults.append(
            _shape(
                missing.join(
                    collectives, on=instance, nulls_equal=True, maintain_order="left"
                ).with_columns(pl.lit(MISSING).alias("fault"), pl.lit(None, pl.String).alias("who"))
            )
        )
    for column, fault in _WHAT.items():
        if len(unlike[column]):
            faults.append(_shape(_differing(having[column].all(), collectives, fault)))
    if not faults:
        return pl.DataFrame(schema=FAULTS)
    return pl.concat(faults).sort("group", "members", "collective", "fault", nulls_last=True)


def _gone(rows: pl.DataFrame, lacking: pl.DataFrame, any_end: bool) -> pl.DataFrame:
    """Return the processes of these rows that should have called the collectives ``lacking`` and did not."""
    instance, group = list(_ONE), list(GROUP)
    mine = rows.group_by("process", *group).agg(
        pl.col("number").min().alias("first"), pl.col("number").max().alias("last")
    )
    called = rows.join(lacking, on=instance, how="semi", nulls_equal=True).select(
        "process", *instance
    )
    absent = mine.join(lacking.select(instance), on=group, nulls_equal=True).join(
        called, on=["process", *instance], how="anti", nulls_equal=True
    )
    # a rank without a later call may have stopped there; ranks that still wait prove that it never came
    waits = pl.lit(any_end) & (pl.col("number") > pl.col("last"))
    between = (pl.col("number") > pl.col("first")) & (pl.col("number") < pl.col("last"))
    return absent.filter(waits | between)


def _untold(entered: Pieces, ran: Pieces) -> pl.DataFrame:
    """Return a row for each reason why collectives are not judged."""
    group = list(GROUP)
    judged = Gathered(group, pl.col("many", "there").sum())
    nameless, unheard = (Gathered(group, pl.col("many").sum()) for _ in range(2))
    heard = []
    count = pl.len().cast(pl.Int64).alias("many")
    for piece in entered():
        rows = _collective(piece)
        judged.add(
            rows.filter(pl.col("number").is_not_null() & pl.col("kind").is_not_null())
            .group_by(group)
            .agg(count, pl.col("process").n_unique().cast(pl.Int64).alias("there"))
        )
        nameless.add(rows.filter(pl.col("number").is_null()).group_by(group).agg(count))
        heard.append(piece.select("process").unique())
    calling = pl.concat(heard).unique()
    for piece in ran():
        silent = _collective(piece).join(calling, on="process", how="anti")
        unheard.add(silent.group_by(group).agg(count))
    without = nameless.all()
    parts = {
        ALONE: judged.all().filter((pl.col("there") == 1) & (pl.col("size") != 1).fill_null(True)),
        NO_GROUP: without.filter(pl.col("group").is_null()),
        SHARED: without.filter(pl.col("group").is_not_null()),
        NO_CALLS: unheard.all(),
    }
    reasons = []
    for why, part in parts.items():
        if part.is_empty():
            continue
        groups = part.select(pl.col("group", "members").cast(pl.String), "size")
        calls = int(part["many"].sum())
        of = units.counted(calls, "call" if why != NO_CALLS else "collective")
        others = "" if len(groups) == 1 else f" of {len(groups):,} groups"
        same = groups.row(0, named=True) if len(groups) == 1 else {}
        reasons.append({**same, "reason": f"cannot tell of {of}{others}: {why}"})
    return pl.DataFrame(reasons, schema=FAULTS)


def _collective(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that are not messages between two ranks, which are not judged."""
    return table.filter(~pl.col("kind").cast(pl.String).is_in(POINT_TO_POINT).fill_null(False))


def last_collectives(entered: Pieces, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process and group (``LAST``; ns): the last collective of the group that it called.

    ``entered`` is in pieces, with each process in one piece. ``behind``: number of collectives by which the
    farthest rank of the group is ahead. ``waits_for``: the ranks that have not called the collective that the
    process is in; null if it ended, or if all have called it. Null, with a ``reason``, if the trace does not
    show it.
    """
    last = pl.concat(
        rows.sort("number", "called", maintain_order=True)
        .group_by("process", *GROUP, maintain_order=True)
        .agg(
            pl.len().alias("calls"),
            pl.col("number", "kind", "bytes", "called").last(),
            pl.col("end").last().alias("ended"),
            _waited().last().alias("waited"),
            pl.col("ends", "done", "source").last(),
        )
        for rows in _place(entered, ranks)
    )
    if last.is_empty():
        return pl.DataFrame(schema=LAST)
    last = last.with_columns(
        (pl.col("number").max().over(*GROUP) - pl.col("number")).alias("behind"),
    )
    several = pl.col("process").n_unique().over(*GROUP) > 1
    last = last.with_columns(pl.when(several).then("behind").alias("behind"))
    waiting = _behind(last, ranks)
    pending = ~pl.col("done") & (pl.col("ends") > 0)
    return (
        last.join(waiting, on=list(_ONE), how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            pl.when(pending | (pl.col("ends") == 0)).then("waits_for").alias("waits_for"),
            pl.when(pl.col("ends") == 0)
            .then(pl.lit(NO_TIMES))
            .when(pending)
            .then(pl.lit(NO_END))
            .when(pl.col("ended").is_null())
            .then(pl.lit(NO_END_TIME))
            .alias("reason"),
        )
        .join(
            ranks.unique("process", keep="first").select("process", "rank"),
            on="process",
            how="left",
            maintain_order="left",
        )
        .rename({"number": "collective"})
        .cast(dict(LAST.items()))
        .sort("group", "members", "collective", "process", nulls_last=True)
        .select(*LAST)
    )


def _waited() -> pl.Expr:
    """Return how long a call that did not end had waited when the recording ended.

    Null if a source records which calls completed, but no times, because then the time of the end is unknown.
    """
    since = (pl.col("until") - pl.col("called")).clip(lower_bound=0)
    timed = pl.col("completed").is_null() & (pl.col("ends") > 0)
    return pl.when(~pl.col("done") & timed).then(since)


def _behind(last: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return ``waits_for`` for each group and number that is some rank's last: the ranks that have not got so
    far."""
    instance, group = list(_ONE), list(GROUP)
    reached = last.select(*group, "process", pl.col("number").alias("reached"))
    asked = last.select(instance).unique(maintain_order=True)
    # a batch is small, so the join with the ranks of its groups has few pairs
    pairs = asked.join(
        reached.group_by(group).len(), on=group, nulls_equal=True, maintain_order="left"
    )
    turn = pairs["len"].cum_sum() // MOST
    listed = []
    for part in asked.with_columns(turn.alias("turn")).partition_by("turn", include_key=False):
        behind = part.join(reached, on=group, nulls_equal=True).filter(
            pl.col("reached") < pl.col("number")
        )
        listed.append(
            _name(behind, "process", ranks)
            .group_by(instance, maintain_order=True)
            .agg(_list("rank_name").alias("waits_for"))
        )
    return pl.concat(listed)


def _place(entered: Pieces, ranks: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the numbered collectives with ``until``, ``done`` (whether it completed, by its end or by the
    source's record), and ``ends`` (for how many of the process's collectives this is known)."""
    kind = pl.col("kind").cast(pl.String)
    ended = pl.col("end").is_not_null()
    until = ranks.unique("process", keep="first").select("process", "until")
    for piece in entered():
        # partials of older versions lack these columns
        lacking = [
            pl.lit(None, kind_).alias(name)
            for name, kind_ in _TOLD.items()
            if name not in piece.columns
        ]
        rows = piece.join(until, on="process", how="left", maintain_order="left").with_columns(
            lacking
        )
        told = ended | pl.col("completed").is_not_null()
        rows = rows.with_columns(
            told.sum().over("process").alias("ends"),
            (ended | pl.col("completed").fill_null(False)).alias("done"),
        )
        yield rows.with_columns(kind.alias("kind")).filter(
            pl.col("number").is_not_null() & ~pl.col("kind").is_in(POINT_TO_POINT)
        )


def _valued(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the rows whose values of ``column`` should equal those of the other ranks."""
    valued = rows.drop_nulls(column)
    return valued.filter(~pl.col("kind").is_in(_UNEVEN)) if column == "bytes" else valued


def _value(column: str) -> pl.Expr:
    return (pl.col(column).cast(pl.String) + (" bytes" if column == "bytes" else "")).alias("value")


def _differing(having: pl.DataFrame, there: pl.DataFrame, fault: str) -> pl.DataFrame:
    """Return the collectives in which the ranks' values differ, with the ranks of each value."""
    differing = (
        _by_rank(having)
        .group_by(*_ONE, "value", maintain_order=True)
        .agg(_list("rank_name").alias("having"))
        .sort(*_ONE, "value")
        .group_by(*_ONE, maintain_order=True)
        .agg(pl.format("{}: {}", "value", "having").str.join("; ").alias("who"))
    )
    return differing.join(
        there, on=list(_ONE), nulls_equal=True, maintain_order="left"
    ).with_columns(pl.lit(fault).alias("fault"), pl.lit(None, pl.String).alias("missing_ranks"))


def _first_named(rows: pl.DataFrame, key: list[str], ranks: pl.DataFrame) -> pl.DataFrame:
    """Return for each ``key`` the processes of ``rows`` whose names fit into a text."""
    named = _name(rows.select("process", *key), "process", ranks)
    return (
        named.unique([*key, "rank_name"], keep="first", maintain_order=True)
        .filter(pl.int_range(pl.len()).over(key) < _NAMES)
        .select(*key, "rank_name", "rank", "process")
    )


def _by_rank(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("rank", "process", nulls_last=True, maintain_order=True)


def _name(rows: pl.DataFrame, process: str, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return ``rows`` by rank, with ``rank_name``: the rank, or the process if it is not known."""
    named = ranks.unique("process", keep="first").select(pl.col("process").alias(process), "rank")
    return rows.join(named, on=process, how="left", maintain_order="left").sort(
        "rank", process, nulls_last=True, maintain_order=True
    ).with_columns(
        pl.coalesce(pl.format("{}", "rank"), pl.format("process {}", process)).alias("rank_name")
    )  # fmt: skip


def _list(name: str) -> pl.Expr:
    """Return the texts of a group joined into one; it is cut at ``_TEXT`` characters."""
    text = pl.col(name).unique(maintain_order=True).str.join(", ")
    return pl.when(text.str.len_chars() > _TEXT).then(text.str.head(_TEXT) + " …").otherwise(text)


def _shape(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.rename({"number": "collective"}).with_columns(pl.lit(None).alias("reason"))
    return rows.select(*FAULTS).cast(dict(FAULTS.items()))


def collective_calls(profile: Answers) -> pl.DataFrame:
    """The calls of collectives."""
    return called(profile.attribution, profile.of(exchanges))


def call_pieces(profile: Answers) -> Pieces:
    """The calls of collectives, matched across processes, in pieces."""
    return one_piece(matched(profile.of(collective_calls), one_clock(profile.trace)))


def answer(profile: Answers) -> pl.DataFrame:
    """Collectives that some ranks never entered, or entered with another kind, size or dtype.

    Only ranks in the profile count as missing. Where collectives cannot be judged, a row without a
    ``fault`` has the ``reason``; a profile without rows has no faulty collective.
    """
    return collective_faults(
        profile.of(call_pieces), profile.of(rank_ends), profile.of(exchange_pieces)
    )


def answer_last(profile: Answers) -> pl.DataFrame:
    """The last collective that each rank called in each group, whether it ended, and for which ranks it
    waits.

    In a hang, the others wait for the ranks that are behind.
    """
    return last_collectives(profile.of(call_pieces), profile.of(rank_ends))


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "collective_faults()",
                (
                    "one row per collective and what is wrong with it; then a row per reason why "
                    "others are not judged"
                ),
                columns(
                    "fault group members size collective kind entered completed waited "
                    "missing_ranks who reason",
                    """
                    fault: text: not entered by all; kinds, sizes or dtypes differ; null where it cannot
                        be told
                    group: text: name of the process group
                    kind: text: the kind of collective
                    entered: count: ranks that called it
                    completed: count: ranks on which its end was recorded
                    missing_ranks: text: ranks of the group that are in the profile and did not call it
                    who: text: which ranks have which value
                    reason: text: why it cannot be told whether there is a fault; null where there is one
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="collective_faults",
                title="Missing and mismatched collectives",
                empty="no collective that some rank did not enter, or entered unlike others",
            ),
        ),
    ),
    Question(
        answer=answer_last,
        frames=(
            Frame(
                "last_collectives()",
                "one row per process and group: the last collective that it called",
                columns(
                    "process rank group members size calls collective kind bytes called ended "
                    "waited behind waits_for source reason",
                    """
                    group: text: name of the process group
                    calls: count: collectives of the group that it called
                    kind: text: the kind of collective
                    bytes: bytes: larger of input and output
                    called: ns: when the process called it
                    ended: ns: when it ended; null if that is not in the recording
                    behind: count: collectives of the group that the farthest rank has called beyond it;
                        null if it is alone
                    waits_for: text: ranks that have not called it, if it did not end
                    source: text: line of the program that called it
                    reason: text: why ended is null
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="last_collectives",
                title="Last collective of each rank",
                empty="no collective whose group is known in this profile",
            ),
        ),
    ),
)
