"""The bandwidth of collectives without the ranks' waiting for each other, within and between machines."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchange_pieces
from opscope.core.analysis.ranks.distributed import machine_errors
from opscope.core.job.exchanges import GROUP, SYNCHRONISING
from opscope.core.perf.ops.communication import wire_bytes
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.gathered import Gathered
from opscope.core.tables.narrow import Pieces

WITHIN: Final = "within a machine"
BETWEEN: Final = "between machines"
RATES: Final = {
    "kind": pl.String,
    "group": pl.String,
    "members": pl.String,
    "size": pl.Int64,
    "bytes": pl.Int64,
    "place": pl.String,
    "machines": pl.Int64,
    "compared": pl.Int64,
    "transfer_time": pl.Int64,
    "bus_bandwidth": pl.Float64,
    "median_bandwidth": pl.Float64,
    "best_bandwidth": pl.Float64,
    "skewed_bandwidth": pl.Float64,
    "reason": pl.String,
}
ALONE: Final = "the times of no other rank are known, so waiting is not told from transfer"
NO_MEETING: Final = "its ranks need not wait for each other, so transfer is not told from waiting"
NO_SIZE: Final = "sizes or the number of ranks are not recorded"


def collective_rates(exchanged: Pieces, machine_of: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind, group and message size (``RATES``; ns, bytes, bytes/s), by transfer time.

    A collective's transfer time is the time that the last rank to enter spends in it. ``bus_bandwidth``:
    bytes on the wire, as nccl-tests defines them, of all collectives, divided by their transfer times;
    ``skewed_bandwidth``: divided by the mean time of their ranks, waiting included. ``exchanged``:
    ``timed.exchanged`` of all ranks, in pieces, with each process in one piece; ``machine_of``: process and
    machine. ``place`` is null unless all ranks of the group are in the profile.
    """
    key = ["kind", *GROUP, "bytes"]
    meets = pl.col("kind").cast(pl.String).is_in(SYNCHRONISING)
    machine = machine_of.unique("process", keep="first")
    keys = Gathered(key)
    ranks = Gathered(list(GROUP), pl.col("ranks").sum())
    machines = Gathered([*GROUP, "machine"])
    compared = Gathered([*key, "number"], pl.col("shortest").first(), pl.col("time", "many").sum())
    for piece in exchanged():
        rows = piece.filter(pl.col("duration").is_not_null() & pl.col("kind").is_not_null()).join(
            machine, on="process", how="left", maintain_order="left"
        )
        keys.add(rows.select(key).unique(maintain_order=True))
        ranks.add(rows.group_by(GROUP).agg(pl.col("process").n_unique().alias("ranks")))
        machines.add(rows.select(*GROUP, "machine").unique())
        compared.add(
            rows.filter(meets & pl.col("shortest").is_not_null())
            .group_by(*key, "number")
            .agg(
                pl.col("shortest").first(),
                pl.col("duration").sum().alias("time"),
                pl.len().cast(pl.Int64).alias("many"),
            )
        )
    texts = pl.col("kind", "group", "members").cast(pl.String)
    every = keys.all().with_columns(texts)
    if every.is_empty():
        return pl.DataFrame(schema=RATES)
    seen = (
        machines.all()
        .group_by(GROUP)
        .agg(
            pl.col("machine").drop_nulls().n_unique().cast(pl.Int64).alias("machines"),
            pl.col("machine").is_null().any().alias("unknown"),
        )
        .join(ranks.all(), on=list(GROUP), how="left", nulls_equal=True)
        .with_columns(pl.col("group", "members").cast(pl.String))
    )
    is_complete = (pl.col("ranks") == pl.col("size")) & ~pl.col("unknown")
    seen = seen.with_columns(
        pl.when(pl.col("machines") > 1)
        .then(pl.lit(BETWEEN))
        .when(is_complete & (pl.col("machines") == 1))
        .then(pl.lit(WITHIN))
        .alias("place"),
        pl.when(is_complete | (pl.col("machines") > 1)).then("machines").alias("machines"),
    )
    each = (
        compared.all()
        .with_columns(texts, (pl.col("time") / pl.col("many")).alias("mean"))
        .drop("time", "many")
        .sort(*key, "number")  # sums of fractions depend on the order in their last bit
    )
    rated = each.with_columns(_wire(each)).with_columns(
        pl.when(pl.col("shortest") > 0)
        .then(pl.col("wire") / pl.col("shortest") * 1e9)
        .alias("rate")
    )
    timed = pl.col("rate").is_not_null()
    sums = rated.group_by(*key).agg(
        pl.len().alias("compared"),
        pl.col("shortest").sum().alias("transfer_time"),
        *(
            pl.when(pl.col(time).filter(timed).sum() > 0)
            .then(pl.col("wire").filter(timed).sum() / pl.col(time).filter(timed).sum() * 1e9)
            .alias(name)
            for name, time in (("bus_bandwidth", "shortest"), ("skewed_bandwidth", "mean"))
        ),
        pl.col("rate").median().alias("median_bandwidth"),
        pl.col("rate").max().alias("best_bandwidth"),
    )
    rates_of_kinds = (
        every.join(sums, on=key, how="left", nulls_equal=True, maintain_order="left")
        .join(seen, on=list(GROUP), how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            pl.when(~meets)
            .then(pl.lit(NO_MEETING))
            .when(pl.col("compared").is_null())
            .then(pl.lit(ALONE))
            .when(pl.col("bus_bandwidth").is_null())
            .then(pl.lit(NO_SIZE))
            .alias("reason"),
            pl.col("compared").fill_null(0),
        )
    )
    return (
        rates_of_kinds.cast(dict(RATES.items()), strict=False)
        .sort("transfer_time", *key, descending=[True, *[False] * len(key)], nulls_last=True)
        .select(*RATES)
    )


def _wire(rows: pl.DataFrame) -> pl.Series:
    """Return the bytes that each rank must send; null if unknown or 0."""
    distinct = rows.select("kind", "bytes", "size").unique()
    wire = [
        wire_bytes(kind, size, ranks) or None if size is not None and ranks is not None else None
        for kind, size, ranks in distinct.rows()
    ]
    return rows.join(
        distinct.with_columns(pl.Series("wire", wire, pl.Int64)),
        on=["kind", "bytes", "size"], how="left", nulls_equal=True, maintain_order="left",
    )["wire"]  # fmt: skip


def answer(profile: Answers) -> pl.DataFrame:
    """The bandwidth of collectives by group and size, without the waiting of ranks for each other.

    ``place`` says whether the group lies within a machine.
    """
    on = machine_errors(profile.trace).select("process", "machine")
    return collective_rates(profile.of(exchange_pieces), on)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "collective_bandwidth()",
            "one row per kind of collective, group and message size, by transfer time",
            columns(
                "kind group members size bytes place machines compared transfer_time "
                "bus_bandwidth median_bandwidth best_bandwidth skewed_bandwidth reason",
                """
                kind: text: the kind of collective
                group: text: name of the process group
                bytes: bytes: larger of input and output, of one rank
                place: text: within a machine or between machines; null unless all ranks are in the
                    profile
                machines: count: machines of the group's ranks; null unless all ranks are in the profile
                compared: count: collectives of which the times of several ranks are known
                transfer_time: ns: the shortest time of a rank in each, added up
                bus_bandwidth: bytes/s: bytes that at least cross each rank's link, as nccl-tests defines
                    them, / transfer_time
                median_bandwidth: bytes/s: median over the collectives of bytes on the wire / transfer
                    time
                best_bandwidth: bytes/s: the most of a collective
                skewed_bandwidth: bytes/s: as bus_bandwidth, of the mean time of the ranks, their waiting
                    included
                reason: text: why a value is null; null if none is
                """,
            ),
        ),
    ),
    reports=(
        Report(
            name="collective_bandwidth",
            title="Bandwidth of collectives without waiting",
            empty="no collective whose time is known in this profile",
        ),
    ),
)
