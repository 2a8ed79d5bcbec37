"""Match each send of a rank to the receive at its other end."""

from __future__ import annotations

import polars as pl

from opscope.core.job.exchanges import POINT_TO_POINT
from opscope.core.job.numbering import shifts


def messages(table: pl.DataFrame, ranks: pl.DataFrame, same_clock: bool) -> pl.DataFrame:
    """Return one row per message of which both ends are known: ``sender`` and ``receiver`` (processes),
    ``sent`` and ``sent_end``, ``received`` and ``received_end`` (when each began and ended, ns on its clock).

    ``table`` is ``exchanges``, ``ranks`` has process and rank. The i-th send from a rank to another in a
    group is the i-th receive there; if the recordings do not begin with the same message, the counts are
    shifted as those of collectives are. A rank of which there are several processes is left out.
    """
    placed_ranks = ranks.drop_nulls("rank").select("process", pl.col("rank").cast(pl.Int64))
    placed_ranks = placed_ranks.unique().filter(pl.len().over("rank") == 1)
    rows = (
        table.filter(pl.col("kind").cast(pl.String).is_in(POINT_TO_POINT))
        .drop_nulls(["start", "end", "peer"])
        .join(placed_ranks, on="process", how="inner", maintain_order="left")
        .with_columns((pl.col("kind").cast(pl.String) == "send").alias("sends"))
    )
    sends = pl.col("sends")
    rows = rows.with_columns(
        pl.when(sends).then("rank").otherwise("peer").alias("source"),
        pl.when(sends).then("peer").otherwise("rank").alias("target"),
    )
    if rows.is_empty() or rows["sends"].n_unique() < 2:
        return pl.DataFrame(schema=_SCHEMA)
    rows = rows.with_columns(
        pl.struct("group", "source", "target").rank("dense").cast(pl.Int64).alias("whole"),
        pl.col("bytes").fill_null(-1).alias("token"),
        pl.col("sends").cast(pl.Int64).alias("side"),
    ).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("whole", "side").alias("number"))
    by = shifts(rows["whole"], rows["side"], rows["token"], rows["end"], same_clock)
    rows = rows.with_columns(pl.col("number") + pl.Series(by))
    return (
        rows.filter(sends)
        .join(rows.filter(~sends), on=["whole", "number"], how="inner", suffix="_there")
        .select(
            pl.col("process").alias("sender"),
            pl.col("process_there").alias("receiver"),
            pl.col("start").alias("sent"),
            pl.col("end").alias("sent_end"),
            pl.col("start_there").alias("received"),
            pl.col("end_there").alias("received_end"),
        )
    )


_SCHEMA = {
    "sender": pl.Int32,
    "receiver": pl.Int32,
    "sent": pl.Int64,
    "sent_end": pl.Int64,
    "received": pl.Int64,
    "received_end": pl.Int64,
}
