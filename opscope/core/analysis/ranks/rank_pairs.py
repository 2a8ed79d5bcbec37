"""The amount that each rank sent to each other rank, from the splits of all-to-alls and from messages;
uneven loads."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ranks.rank_names import rank_names
from opscope.core.analysis.ranks.splits import MOST_RANKS, split
from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.collectives import KINETO_DTYPES
from opscope.core.group_specs import rank_at
from opscope.core.literals import json_object
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import DTYPE_BITS
from opscope.core.tables.columns import gather

SENT: Final = "its sender"
RECEIVED: Final = "its receiver"
NO_MEMBERS: Final = "the group's ranks are not recorded"
MOVED: Final = {
    "process": pl.Int32,
    "kind": pl.String,
    "recorded_by": pl.String,
    "source": pl.Int64,
    "target": pl.Int64,
    "calls": pl.Int64,
    "bytes": pl.Int64,
}
PAIRS: Final = {
    "kind": pl.String,
    "source_rank": pl.Int64,
    "target_rank": pl.Int64,
    "calls": pl.Int64,
    "bytes": pl.Int64,
    "share": pl.Float64,
    "over_mean": pl.Float64,
    "recorded_by": pl.String,
    "reason": pl.String,
}
LOADS: Final = {
    "kind": pl.String,
    "rank": pl.Int64,
    "sent_bytes": pl.Int64,
    "received_bytes": pl.Int64,
    "sent_over_mean": pl.Float64,
    "received_over_mean": pl.Float64,
}


def moved(attribution: Attribution, table: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, kind and pair of ranks (``MOVED``): the bytes that its records show.

    ``table`` is ``exchanges``. The splits of an all-to-all show how its bytes are divided; without splits
    they are divided evenly. An unknown rank is null.
    """
    rank_of = dict(
        ranks.drop_nulls("rank").unique("process", keep="first").select("process", "rank").rows()
    )
    kind = pl.col("kind").cast(pl.String)
    rows = table.filter(kind.is_in(("all_to_all", "send", "recv"))).with_columns(kind.alias("kind"))
    parts = [_messages(rows, rank_of), _splits(attribution, rows, rank_of)]
    return pl.concat(parts).sort("process", "kind", "recorded_by", "source", "target")


def rank_pairs(sums: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind and pair of ranks (``PAIRS``), by bytes.

    ``sums``: ``moved`` of all ranks, concatenated. A pair is counted once: as recorded by its sender, or by
    its receiver if the sender's record is not in the profile.
    """
    key = ["kind", "source", "target"]
    sent = sums.filter(pl.col("recorded_by") == SENT)
    got = sums.filter(pl.col("recorded_by") == RECEIVED).join(
        sent.select("kind", "source").unique(), on=["kind", "source"], how="anti", nulls_equal=False
    )
    rows = pl.concat([sent, got])
    if rows.is_empty():
        return pl.DataFrame(schema=PAIRS)
    size = pl.col("bytes")
    total = size.sum().over("kind", "source")
    mean = size.mean().over("kind")
    unknown = pl.col("source").is_null() | pl.col("target").is_null()
    return (
        rows.group_by(*key, "recorded_by")
        .agg(pl.col("calls").sum(), size.sum())
        .with_columns(
            pl.when(total > 0).then(size / total).alias("share"),
            pl.when(mean > 0).then(size / mean).alias("over_mean"),
            pl.when(unknown).then(pl.lit(NO_MEMBERS)).alias("reason"),
        )
        .rename({"source": "source_rank", "target": "target_rank"})
        .cast(dict(PAIRS.items()))
        .sort("bytes", *PAIRS, descending=[True, *[False] * len(PAIRS)], nulls_last=True)
        .select(*PAIRS)
    )


def rank_loads(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kind and rank (``LOADS``): the bytes that it sent and received in all; ranks that
    hold experts get unequal numbers of tokens. ``pairs`` is ``rank_pairs``; bytes that a rank sends to itself
    count too."""
    placed = pairs.drop_nulls(["source_rank", "target_rank"])
    out, back = (
        placed.group_by("kind", pl.col(end).alias("rank")).agg(pl.col("bytes").sum().alias(name))
        for end, name in (("source_rank", "sent_bytes"), ("target_rank", "received_bytes"))
    )
    both = out.join(back, on=["kind", "rank"], how="full", coalesce=True).with_columns(
        pl.col("sent_bytes", "received_bytes").fill_null(0)
    )
    over = [
        pl.when(pl.col(name).mean().over("kind") > 0)
        .then(pl.col(name) / pl.col(name).mean().over("kind"))
        .alias(name.replace("_bytes", "_over_mean"))
        for name in ("sent_bytes", "received_bytes")
    ]
    return (
        both.with_columns(over)
        .cast(dict(LOADS.items()))
        .sort("received_bytes", "kind", "rank", descending=[True, False, False])
        .select(*LOADS)
    )


def _messages(rows: pl.DataFrame, rank_of: dict[int, int]) -> pl.DataFrame:
    """Return the sends and receives whose bytes and other end are known, under the kind ``send``."""
    own = pl.col("process").replace_strict(rank_of, default=None, return_dtype=pl.Int64)
    sends = pl.col("kind") == "send"
    messages = rows.filter(pl.col("kind").is_in(("send", "recv"))).drop_nulls(["bytes", "peer"])
    return (
        messages.with_columns(
            pl.lit("send").alias("kind"),
            pl.when(sends).then(own).otherwise("peer").alias("source"),
            pl.when(sends).then("peer").otherwise(own).alias("target"),
            pl.when(sends).then(pl.lit(SENT)).otherwise(pl.lit(RECEIVED)).alias("recorded_by"),
        )
        .group_by("process", "kind", "recorded_by", "source", "target")
        .agg(pl.len().alias("calls"), pl.col("bytes").sum())
        .select(*MOVED)
        .cast(dict(MOVED.items()))
    )


def _splits(attribution: Attribution, rows: pl.DataFrame, rank_of: dict[int, int]) -> pl.DataFrame:
    """Return the splits in the records of all-to-alls; a record shared by several rows is read once."""
    trace = attribution.trace
    rows = rows.filter(pl.col("kind") == "all_to_all")
    if rows.is_empty():
        return pl.DataFrame(schema=MOVED)
    op = rows["op"].fill_null(-1).to_numpy()
    on_range = gather(trace["ranges"]["attrs"].cast(pl.String), op)
    of_kernel = trace["kernels"].select("process", "start", "end", pl.col("attrs").cast(pl.String))
    rows = rows.join(
        of_kernel.unique(["process", "start", "end"], keep="first"),
        on=["process", "start", "end"], how="left", maintain_order="left",
    )  # fmt: skip
    rows = rows.with_columns(pl.coalesce("attrs", on_range).alias("attrs"))
    alike = rows.drop_nulls("attrs").group_by("process", "attrs", "members", "size").len()
    moves: list[tuple[Any, ...]] = []
    for process, attrs, members, size, count in alike.cast({"members": pl.String}).rows():
        params = json_object(attrs)
        for name, by in (("in", SENT), ("out", RECEIVED)):
            for index, moved_ in enumerate(_divide(params, name, size)):
                other = None if members is None else rank_at(members, index)
                own = rank_of.get(process)
                source, target = (own, other) if by == SENT else (other, own)
                moves.append((process, "all_to_all", by, source, target, count, moved_ * count))
    return (
        pl.DataFrame(moves, schema=MOVED, orient="row")
        .group_by("process", "kind", "recorded_by", "source", "target")
        .agg(pl.col("calls").sum(), pl.col("bytes").sum())
        .select(*MOVED)
    )


def _divide(params: dict[str, Any], side: str, size: int | None) -> list[int]:
    """Return the bytes to (``in``) or from (``out``) each place of the group; no rows where the bytes are not
    recorded."""
    elements, dtype = params.get(f"{side}_nelems"), KINETO_DTYPES.get(str(params.get("dtype")))
    if type(elements) is not int or not 0 <= elements < 1 << 44 or dtype is None:
        return []
    total = elements * DTYPE_BITS[dtype] // 8
    rows_of = split(params.get(f"{side}_split"))
    if not rows_of:
        even = rows_of is not None and size is not None and 0 < size <= MOST_RANKS
        return [total // size] * size if even and size else []
    rows = sum(rows_of)
    return [total * row_count // rows for row_count in rows_of] if rows else [0] * len(rows_of)


def messages(profile: Answers) -> pl.DataFrame:
    """The bytes that each rank sent to each other rank, by collective."""
    return moved(profile.attribution, profile.of(exchanges), profile.of(rank_names))


def answer(profile: Answers) -> pl.DataFrame:
    """The bytes that each rank sent to each other rank: from the splits of all-to-alls, and from
    messages."""
    return rank_pairs(profile.of(messages))


def answer_loads(profile: Answers) -> pl.DataFrame:
    """The bytes that each rank sent and received in all-to-alls and messages: uneven where its experts
    are."""
    return rank_loads(profile.rank_pairs())


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "rank_pairs()",
                "one row per kind and pair of ranks, by bytes",
                columns(
                    "kind source_rank target_rank calls bytes share over_mean recorded_by reason",
                    """
                    kind: text: all_to_all, or send for messages
                    source_rank: number: the rank that sent
                    target_rank: number: the rank that received
                    calls: count: all-to-alls, or messages
                    bytes: bytes: bytes that moved from the one to the other
                    share: fraction: bytes / all that the source sent
                    over_mean: fraction: bytes / the mean of all pairs
                    recorded_by: text: whose record says so: its sender's, or its receiver's if the
                        sender's is missing
                    reason: text: why a rank is null
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="rank_pairs",
                title="From rank to rank",
                empty="no all-to-all with sizes, and no message whose ranks and size are known",
            ),
        ),
    ),
    Question(
        answer=answer_loads,
        frames=(
            Frame(
                "rank_loads()",
                "one row per kind and rank, by what it received",
                columns(
                    "kind rank sent_bytes received_bytes sent_over_mean received_over_mean",
                    """
                    kind: text: all_to_all, or send for messages
                    sent_bytes: bytes: bytes that it sent to all ranks, itself included
                    received_bytes: bytes: bytes that it received from all ranks, itself included
                    sent_over_mean: fraction: sent_bytes / the mean of the ranks
                    received_over_mean: fraction: received_bytes / the mean of the ranks
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="rank_loads",
                title="Load of ranks",
                empty="no all-to-all with sizes, and no message whose ranks and size are known",
            ),
        ),
    ),
)
