"""Collectives that not all ranks entered, or not alike; and the last that each rank entered, as in a hang."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.job.exchanges import GROUP, POINT_TO_POINT

_ONE: Final = (*GROUP, "number")
MISSING: Final = "not entered by all"
_WHAT: Final = {"kind": "kinds differ", "dtype": "dtypes differ", "bytes": "sizes differ"}
#: Kinds of which each rank may move another number of bytes.
_UNEVEN: Final = ("all_to_all", "gather", "scatter")
_TEXT: Final = 200
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
    "reason": pl.String,
}
NO_END: Final = "it did not end in the recording"
NO_TIMES: Final = "only calls were recorded, not when they ran"


#: Why collectives are not judged, in the order in which the reasons are looked for.
ALONE: Final = "only one of the group's ranks is in the profile"
NO_GROUP: Final = "which group they are of is not recorded"
SHARED: Final = (
    "more processes than the group has ranks use its name, so that several groups share it"
)
NO_CALLS: Final = "they ran, and calls of collectives are not recorded"


def collective_faults(
    entered: pl.DataFrame, ranks: pl.DataFrame, ran: pl.DataFrame
) -> pl.DataFrame:
    """Return one row per collective and what is wrong with it (``FAULTS``), by group and number; then one row
    per ``reason`` why others cannot be told of, with a null ``fault``.

    ``entered``: ``exchanges.called`` of all ranks, numbered; ``ranks``: ``process``, ``rank`` and
    ``until``, when its recording ended (ns); ``ran``: ``exchanges`` of all ranks. Missing ranks are those
    of the group that are in the profile and did not call it. A collective that another rank completed had
    all of its ranks, so one that lacks there lies outside a recording and is no fault. Where nothing
    shows whether it was completed (calls alone), only a rank that has a later one of the group is
    missing. ``waited`` (ns): how long the others had waited when the recording ended; if that is no
    longer than usual, it may just have ended too early.
    """
    rows = _placed(entered, ranks)
    return pl.concat([_found(rows, ranks), _untold(entered, rows, ran)])


def _found(rows: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    if rows.is_empty():
        return pl.DataFrame(schema=FAULTS)
    there = (
        rows.group_by(*_ONE, maintain_order=True)
        .agg(
            pl.col("kind").mode().sort().first().alias("kind"),
            pl.len().alias("entered"),
            pl.col("end").count().alias("completed"),
            pl.col("process").unique().alias("processes"),
            _waited().max().alias("waited"),
        )
        .join(_members(rows), on=list(GROUP), how="left", nulls_equal=True)
    )
    lacks = pl.col("all").list.set_difference("processes")
    gone = (
        there.with_columns(lacks.alias("lacks"))
        .filter((pl.col("lacks").list.len() > 0) & (pl.col("completed") == 0))
        .explode("lacks")
        .join(
            rows.group_by("process", *GROUP).agg(
                pl.col("number").min().alias("first"),
                pl.col("number").max().alias("last"),
                pl.col("end").count().alias("ran"),
            ),
            left_on=["lacks", *GROUP], right_on=["process", *GROUP], how="left", nulls_equal=True,
        )
    )  # fmt: skip
    # whoever has no later one may have stopped there; that it never came is shown by those that still wait
    waits = pl.col("any_end") & (pl.col("number") > pl.col("last"))
    between = (pl.col("number") > pl.col("first")) & (pl.col("number") < pl.col("last"))
    gone = gone.with_columns(pl.lit(rows["end"].count() > 0).alias("any_end"))
    gone = gone.filter((waits | between).fill_null(False))
    missing = (
        _named(gone, "lacks", ranks)
        .group_by(*_ONE, "kind", "entered", "completed", "waited", maintain_order=True)
        .agg(_listed("rank_name").alias("missing_ranks"))
        .with_columns(pl.lit(MISSING).alias("fault"), pl.lit(None, pl.String).alias("who"))
    )
    found = [_shaped(missing)]
    for column, fault in _WHAT.items():
        found.append(_shaped(_differing(rows, there, column, fault, ranks)))
    return pl.concat(found).sort("group", "members", "collective", "fault", nulls_last=True)


def _untold(entered: pl.DataFrame, rows: pl.DataFrame, ran: pl.DataFrame) -> pl.DataFrame:
    """Return a row per reason why collectives are not judged. ``rows`` are those of ``entered`` that have a
    number."""
    group = list(GROUP)
    one_of = rows.filter(pl.col("process").n_unique().over(group) == 1)
    nameless = _collective(entered).filter(pl.col("number").is_null())
    unheard = _collective(ran).join(entered.select("process").unique(), on="process", how="anti")
    parts = {
        ALONE: one_of.filter((pl.col("size") != 1).fill_null(True)),
        NO_GROUP: nameless.filter(pl.col("group").is_null()),
        SHARED: nameless.filter(pl.col("group").is_not_null()),
        NO_CALLS: unheard,
    }
    told = []
    for why, part in parts.items():
        if part.is_empty():
            continue
        groups = part.select(pl.col("group", "members").cast(pl.String), "size").unique()
        of = f"{len(part):,} calls" if why != NO_CALLS else f"{len(part):,} collectives"
        many = "" if len(groups) == 1 else f" of {len(groups):,} groups"
        same = groups.row(0, named=True) if len(groups) == 1 else {}
        told.append({**same, "reason": f"cannot tell of {of}{many}: {why}"})
    return pl.DataFrame(told, schema=FAULTS)


def _collective(found: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that are no messages between two ranks: those are not judged."""
    return found.filter(~pl.col("kind").cast(pl.String).is_in(POINT_TO_POINT).fill_null(False))


def last_collectives(entered: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process and group (``LAST``; ns): the last collective of the group that it called.

    ``behind``: how many collectives of the group the farthest rank has called beyond it. ``waits_for``: the
    ranks that have not called the one that it is in; null if it ended, or if all have called it. Null with a
    ``reason`` where the trace does not show it.
    """
    rows = _placed(entered, ranks)
    if rows.is_empty():
        return pl.DataFrame(schema=LAST)
    last = rows.sort("number", "called").group_by("process", *GROUP, maintain_order=True).agg(
        pl.len().alias("calls"),
        pl.col("number", "kind", "bytes", "called").last(),
        pl.col("end").last().alias("ended"),
        _waited().last().alias("waited"),
        pl.col("ends").last(),
    )  # fmt: skip
    last = last.with_columns(
        (pl.col("number").max().over(*GROUP) - pl.col("number")).alias("behind"),
    )
    several = pl.col("process").n_unique().over(*GROUP) > 1
    last = last.with_columns(pl.when(several).then("behind").alias("behind"))
    pairs = last.select("process", *_ONE).join(
        last.select(*GROUP, pl.col("process").alias("other"), pl.col("number").alias("reached")),
        on=list(GROUP), nulls_equal=True,
    ).filter(pl.col("reached") < pl.col("number"))  # fmt: skip
    waiting = (
        _named(pairs, "other", ranks)
        .group_by("process", *GROUP, maintain_order=True)
        .agg(_listed("rank_name").alias("waits_for"))
    )
    pending = pl.col("ended").is_null() & (pl.col("ends") > 0)
    return (
        last.join(
            waiting, on=["process", *GROUP], how="left", nulls_equal=True, maintain_order="left"
        )
        .with_columns(
            pl.when(pending | (pl.col("ends") == 0)).then("waits_for").alias("waits_for"),
            pl.when(pl.col("ends") == 0)
            .then(pl.lit(NO_TIMES))
            .when(pending)
            .then(pl.lit(NO_END))
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
    """Return how long a call that did not end had waited when the recording ended."""
    since = (pl.col("until") - pl.col("called")).clip(lower_bound=0)
    return pl.when(pl.col("end").is_null() & (pl.col("ends") > 0)).then(since)


def _placed(entered: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return the numbered collectives with ``until``, and ``ends``: how many of the process's ended."""
    kind = pl.col("kind").cast(pl.String)
    until = ranks.unique("process", keep="first").select("process", "until")
    entered = entered.join(until, on="process", how="left", maintain_order="left").with_columns(
        pl.col("end").count().over("process").alias("ends")
    )
    return entered.with_columns(
        kind.alias("kind"),
        *(pl.col(name).cast(pl.String) for name in ("group", "members", "dtype")),
    ).filter(pl.col("number").is_not_null() & ~kind.is_in(POINT_TO_POINT))


def _members(rows: pl.DataFrame) -> pl.DataFrame:
    """Return per group the processes that are seen in any of its collectives."""
    return rows.group_by(*GROUP).agg(pl.col("process").unique().alias("all"))


def _differing(
    rows: pl.DataFrame, there: pl.DataFrame, column: str, fault: str, ranks: pl.DataFrame
) -> pl.DataFrame:
    """Return the collectives in which the ranks' values of ``column`` differ, and who has which."""
    known = rows.drop_nulls(column)
    if column == "bytes":
        known = known.filter(~pl.col("kind").is_in(_UNEVEN))
    known = known.filter(pl.col(column).n_unique().over(_ONE) > 1)
    value = pl.col(column).cast(pl.String) + (" bytes" if column == "bytes" else "")
    each = _named(known, "process", ranks).with_columns(value.alias("value"))
    told = (
        each.group_by(*_ONE, "value", maintain_order=True)
        .agg(_listed("rank_name").alias("having"))
        .sort(*_ONE, "value")
        .group_by(*_ONE, maintain_order=True)
        .agg(pl.format("{}: {}", "value", "having").str.join("; ").alias("who"))
    )
    return told.join(there, on=list(_ONE), nulls_equal=True, maintain_order="left").with_columns(
        pl.lit(fault).alias("fault"), pl.lit(None, pl.String).alias("missing_ranks")
    )


def _named(rows: pl.DataFrame, process: str, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return ``rows`` by rank, with ``rank_name``: the rank, or the process if it is not known."""
    named = ranks.unique("process", keep="first").select(pl.col("process").alias(process), "rank")
    return rows.join(named, on=process, how="left", maintain_order="left").sort(
        "rank", process, nulls_last=True, maintain_order=True
    ).with_columns(
        pl.coalesce(pl.format("{}", "rank"), pl.format("process {}", process)).alias("rank_name")
    )  # fmt: skip


def _listed(name: str) -> pl.Expr:
    """Return the texts of a group in one; of more than ``_TEXT`` characters the rest is cut."""
    whole = pl.col(name).unique(maintain_order=True).str.join(", ")
    return (
        pl.when(whole.str.len_chars() > _TEXT).then(whole.str.head(_TEXT) + " …").otherwise(whole)
    )


def _shaped(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.rename({"number": "collective"}).with_columns(pl.lit(None).alias("reason"))
    return rows.select(*FAULTS).cast(dict(FAULTS.items()))
