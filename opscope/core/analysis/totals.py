"""Totals: kernels by name, ops by name, shapes, layer and source, unattributed time by reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.executed import ALL_FLOPS
from opscope.core.analysis.op_frame import COST_COLUMNS, identity_of
from opscope.core.analysis.op_times import device_column, launched, self_time
from opscope.core.analysis.ops import Ops
from opscope.core.analysis.windows import reasons
from opscope.core.tables.columns import compact, gather, hand_back, known_sum, pieces
from opscope.core.tables.intervals import Ints

#: Two op instances are the same op in a table of totals if these columns are equal.
SAME_OP: Final = (
    "op",
    "op_type",
    "direction",
    "layer",
    "source",
    "inputs",
    "outputs",
    "dtypes",
    "params",
)
#: Sums that are null if none of their values is known.
_PARTIAL: Final = ("device_time", *COST_COLUMNS)
#: Rows of ``op_totals`` in a piece: 120 bytes each, and as many while they are added up.
_ROWS: Final = 500_000
_SUMMED: Final = ("calls", "kernels", "cpu_time", "self_time")


def kernel_totals(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return one row per kernel name: calls, total/mean/min/max time (ns), share of all kernel time, the op
    it most often belongs to, whether it uses Tensor Cores (null: not known), sums of FLOPs and bytes."""
    duration = pl.col("duration")
    return (
        kernels.lazy()
        .with_columns(ALL_FLOPS)
        .group_by("name")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            duration.sum().alias("total"),
            duration.mean().alias("mean"),
            duration.min().alias("min"),
            duration.max().alias("max"),
            pl.col("op").drop_nulls().mode(maintain_order=True).first().alias("op"),
            pl.col("tensor_core").any(ignore_nulls=False),
            known_sum("flops"),
            known_sum("bytes"),
        )
        .with_columns((pl.col("total") / kernels["duration"].sum()).alias("share"))
        .sort("total", "name", descending=[True, False])
        .select(
            "name",
            "calls",
            "total",
            "mean",
            "min",
            "max",
            "share",
            "op",
            "tensor_core",
            "flops",
            "bytes",
        )
        .collect()
    )


def op_totals(sums: pl.DataFrame) -> pl.DataFrame:
    """Return one row per distinct op (name, direction, layer, source, shapes, params): calls, kernels,
    cpu_time, self_time, own device_time (ns), FLOPs, bytes, share, reason; the longest time first.

    Calls outside the windows in which kernels were captured have their own rows: their device time is
    null, ``reason`` says why, and their FLOPs are never divided by the time of other calls. ``share`` is
    of the summed device time. The time of nested ops is counted once: at the op that counts
    (``canonical``) around the op that launched, else at the op that launched. ``sums`` is ``op_sums``.
    """
    return pl.concat(op_total_pieces(sums))


def op_total_pieces(sums: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """``op_totals`` in pieces that fit in memory, in order; one at least.

    Equal ops are found by numbers for their texts, and texts are taken for one piece at a time. The rows are
    put in the order of their texts, in which equal ones are neighbours, and then in that of their times: to
    group by numbers, and order what that gives, takes three times as long and half as much memory again.
    """
    whole = int(sums["device_time"].sum())
    share = pl.col("device_time") / whole if whole else pl.lit(None, pl.Float64)
    hand_back()  # what making ``sums`` took
    by_text, begin = _by_text(_packed(_ranks(sums[name]) for name in (*SAME_OP, "reason")))
    times = [_added(sums[name], by_text, begin) for name in ("device_time", "self_time")]
    order = _stable_order(_packed(map(_from_most, times)))
    stop: Ints = np.append(begin[1:], len(sums)).astype(np.int64)
    for part in pieces(len(begin), _ROWS):
        first, last = begin[order[part]], stop[order[part]]
        rows = by_text[_stretches(first, last)]  # those of equal ops after each other
        edges = np.cumsum(last - first) - (last - first)
        one = sums.select(*SAME_OP, "reason")[pl.Series(by_text[first].astype(np.uint32))]
        yield pl.DataFrame(
            [
                *one.get_columns()[:-1],
                *(_added(sums[name], rows, edges) for name in (*_SUMMED, *_PARTIAL)),
            ]
        ).with_columns(share.alias("share"), one["reason"])


def _by_text(keys: list[Ints]) -> tuple[Ints, Ints]:
    """Return the order of rows by ``keys``, and where in it the rows with each different key begin."""
    order = _stable_order(keys)
    differs = np.ones(len(order), bool)
    if len(order):
        differs[1:] = False
        for key in keys:
            ordered = key[order]
            differs[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(differs)


def _stretches(first: Ints, last: Ints) -> Ints:
    """Return the numbers ``first[0]`` to ``last[0]`` (without it), ``first[1]`` to ``last[1]`` …"""
    many = last - first
    if (many == 1).all():
        return first
    return np.repeat(first - (np.cumsum(many) - many), many) + np.arange(int(many.sum()))


def _added(column: pl.Series, rows: Ints, begin: Ints) -> pl.Series:
    """Return the sums of a column's ``rows`` from each place ``begin`` to the next; null if all are null."""
    held = column.gather(pl.Series(rows.astype(np.uint32)))
    if len(begin) == len(rows):
        return held
    values = held.fill_null(0).to_numpy()
    found = pl.Series(column.name, np.add.reduceat(values, begin))
    if not held.null_count():
        return found
    known = np.add.reduceat(held.is_not_null().to_numpy().astype(np.int64), begin)
    some: pl.Series = found.set(pl.Series(known == 0), None)
    return some


def op_sums(ops: Ops) -> pl.DataFrame:
    """Return the rows that ``op_totals`` adds up: unordered, one op in one row or more.

    A caller that adds them up further uses these: for a million distinct ops, adding up equal ones and
    ordering them takes as long as all other work here. Ops are distinguished by numbers, and one op of
    each kind is described.
    """
    kinds = _kinds(ops)
    places = kinds["priced"].to_numpy()
    return kinds.select(
        *identity_of(ops, kinds["row"].to_numpy()).values(),
        *_SUMMED,
        "device_time",
        # calls of one kind have equal costs
        *(gather(ops.costs.catalogue[name], places) * kinds["calls"] for name in COST_COLUMNS),
        "reason",
    )


def _stable_order(keys: list[Ints]) -> Ints:
    """Return the order of the rows by ``keys``, the first before the second; equal rows keep theirs.

    Keys are packed into a few integers: a sort by each of eleven columns takes several times as long.
    """
    order = np.argsort(keys[0], kind="stable")
    same = np.diff(keys[0][order]) == 0
    tied = np.flatnonzero(np.append(False, same) | np.append(same, False))
    if len(keys) > 1 and len(tied):  # the other keys only order rows with equal first keys
        rows = order[tied]
        order[tied] = rows[np.lexsort([key[rows] for key in keys[::-1]])]
    return order


#: A packed key is smaller than this: it fits in 64 bits with a sign.
_WIDEST: Final = 1 << 62


def _packed(ranks: Iterable[NDArray[Any]]) -> list[Ints]:
    """As few integers as hold the ranks of each row, in their order: the first decides, then the second."""
    keys: list[Ints] = []
    size = 1
    for rank in ranks:
        many = int(rank.max(initial=0)) + 1
        if not keys or size * many > _WIDEST:
            keys.append(rank.astype(np.int64))
            size = many
        else:
            keys[-1] *= many
            keys[-1] += rank
            size *= many
    return keys


def _from_most(times: pl.Series) -> Ints:
    """Return numbers that order the times from the longest to the shortest, null last."""
    top: Any = times.max()
    if top is None:
        return np.zeros(len(times), np.int64)
    rank: Ints = (top - times).fill_null(top - times.min() + 1).to_numpy()
    return rank


def _ranks(column: pl.Series) -> NDArray[np.uint32]:
    """Return for each row the alphabetical rank of its text, null last."""
    codes, texts = compact(column.cast(pl.Categorical))
    order = sorted(
        range(len(texts)), key=lambda number: (texts[number] is None, texts[number] or "")
    )
    rank = np.empty(len(texts), np.uint32)
    rank[order] = np.arange(len(texts), dtype=np.uint32)
    places: NDArray[np.uint32] = rank[codes]
    return places


def _kinds(ops: Ops) -> pl.DataFrame:
    """Return one row per kind of op: the ``row`` of one such op, its place in the catalogue (``priced``),
    and the sums."""
    attribution = ops.attribution
    ranges, parent = attribution.trace["ranges"], attribution.parent
    known = ops.identities
    kind, row, within = known.number, known.row, known.captured
    many = len(row)

    def lasted(rows: slice) -> Ints:  # of a slice: the lengths of all ranges take 8 bytes each
        lengths: Ints = (ranges["end"][rows] - ranges["start"][rows]).fill_null(0).to_numpy()
        return lengths

    sums = {name: np.zeros(many, np.int64) for name in _SUMMED}
    alone = self_time(lasted, parent)
    for part in pieces(len(parent)):
        rows = part.start + np.flatnonzero(attribution.is_op[part])
        whole = lasted(part)
        of = kind[rows]
        sums["calls"] += np.bincount(of, minlength=many)
        np.add.at(sums["cpu_time"], of, whole[rows - part.start])
        np.add.at(sums["self_time"], of, alone[rows])
    device = None
    if ops.on_device:
        device, sums["kernels"] = launched(attribution, kind, many, ops.counted_ops)
    elif not attribution.trace.used_gpu:
        device = sums["self_time"]
    device_time = device_column("device_time", device, len(row), within)
    return pl.DataFrame(
        {
            "row": row,
            "priced": ops.costs.priced(row),
            **sums,
            "device_time": device_time,
            "reason": reasons(attribution.trace, device_time, within),
        }
    )


def unattributed(kernels: pl.DataFrame, memops: pl.DataFrame) -> pl.DataFrame:
    """Return one row per reason why kernels or copies have no op: reason, kernels, copies, kernel_time,
    time (ns, both), share of all device time.

    ``time`` adds up to the summary's ``device_unattributed_time``, ``kernel_time`` to its
    ``unattributed_time``.
    """
    whole = sum(int(part["duration"].sum()) for part in (kernels, memops))
    duration, is_kernel = pl.col("duration"), pl.col("kernel")
    return (
        pl.concat(
            part.lazy().select("reason", "duration", pl.lit(kernel).alias("kernel"))
            for part, kernel in ((kernels, True), (memops, False))
        )
        .filter(pl.col("reason").is_not_null())
        .group_by("reason")
        .agg(
            is_kernel.sum().cast(pl.Int64).alias("kernels"),
            (~is_kernel).sum().cast(pl.Int64).alias("copies"),
            duration.filter(is_kernel).sum().alias("kernel_time"),
            duration.sum().alias("time"),
        )
        .with_columns((pl.col("time") / (whole or None)).alias("share"))
        .sort("time", "reason", descending=[True, False])
        .collect()
    )
