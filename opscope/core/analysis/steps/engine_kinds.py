"""Decide which iterations of a process without marked steps are prefills and which are decodes of a language
model.

The most certain of these decides:

- attention over a cache: a query of one token with more keys is a decode, as many queries as keys a prefill.
  A process without a decode is no engine: a vision transformer attends to as many keys as it has queries.
- the rows of most matrix products: where they fall into two groups, a factor of four apart, the smaller are
  the batches of decodes. A step with both phases looks like a prefill.
- the device time of the steps, if it falls into two such groups; there the counts are not known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from opscope.core.analysis.ops.ops import Ops
from opscope.core.attribution.several_optimizers import LEAST
from opscope.core.dialects import Reading
from opscope.core.perf import kinds, op_type
from opscope.core.schema import TensorSpec
from opscope.core.sizes import LARGEST
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.lanes import distinct_numbers

BY_ATTENTION, BY_PRODUCTS, BY_TIMES = "attention", "rows of products", "times"
#: Confidence in a kind, by the evidence for it.
SURE: Final = {BY_ATTENTION: 0.9, BY_PRODUCTS: 0.6, BY_TIMES: 0.4}
#: Least ratio between two groups of steps, and between pauses around and inside bursts of ops.
_APART: Final = 4.0
_BURSTS: Final = 3.0
#: Confidence in steps that are bursts of equally many ops, between which the host did nothing.
OF_BURSTS: Final = 0.5
#: Least share of the bursts that must have equally many ops.
_ALIKE: Final = 0.9
#: With more ops than this, bursts are not searched for.
_MOST_OPS: Final = 2_000_000


def main_thread(ops: Ops, process: int) -> int:
    """Return the thread with most ops of a process."""
    ranges = ops.attribution.trace["ranges"]
    rows = ranges.select("process", "thread")[ops.rows].filter(pl.col("process") == process)
    return _most_often(rows["thread"])


def _most_often(threads: pl.Series) -> int:
    mode = threads.drop_nulls().mode()
    return int(mode.min()) if len(mode) else NONE  # type: ignore[arg-type]


def bursts(ops: Ops, process: int) -> pl.DataFrame | None:
    """Return bursts of equally many ops, between which the thread did nothing for far longer than inside.
    Without ops in the process, they are bursts of launches.

    The end of a burst is not marked, so it lasts until the next begins.
    """
    attribution = ops.attribution
    ranges = attribution.trace["ranges"]
    if len(ops.rows) > _MOST_OPS:
        return None
    rows = np.flatnonzero(attribution.is_op & ~attribution.above(attribution.is_op))
    lane = ("process", "thread", "start", "end")
    mine = ranges.select(lane)[rows].filter(pl.col("process") == process)
    calls = attribution.trace["calls"]
    if mine.is_empty() and len(calls) <= _MOST_OPS:  # the launches alone
        launching = distinct_numbers(launches(ops))
        mine = calls.select(lane)[launching[launching >= 0]].filter(pl.col("process") == process)
    thread = _most_often(mine["thread"])
    mine = mine.filter(pl.col("thread") == thread).sort("start")
    start, end = (mine[name].to_numpy() for name in ("start", "end"))
    if len(start) < 2 * LEAST:
        return None
    gaps = start[1:] - np.maximum.accumulate(end)[:-1]
    ordered = np.sort(np.maximum(gaps, 1))
    ratios = ordered[1:] / ordered[:-1]
    widest = int(np.argmax(ratios))
    if ratios[widest] < _BURSTS:
        return None
    first = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(gaps > ordered[widest]) + 1))
    counts = np.diff(np.append(first, len(start)))
    _, often = np.unique(counts, return_counts=True)
    if len(first) < LEAST or often.max() < _ALIKE * len(first):
        return None
    return pl.DataFrame(
        {
            "thread": np.full(len(first), thread),
            "start": start[first],
            "end": np.append(start[first[1:]], end.max()),
            "sure": np.full(len(first), OF_BURSTS),
        }
    )


class _Shapes(NamedTuple):
    """For each reading: the number of rows of its matrix product (0: none); for an attention, the numbers of
    sequences, queries and keys."""

    products: Ints
    attention: Ints

    @classmethod
    def of(cls, ops: Ops) -> _Shapes:
        each = ops.attribution.meaning.each
        return cls(each(_rows, np.int64), each(_lengths, np.int64).reshape(-1, 3))


def _shapes(reading: Reading) -> list[tuple[int, ...]]:
    call = reading.call
    if reading.role != "op" or call is None:
        return []
    return [
        tuple(int(size) for size in arg.shape)
        for arg in call.inputs
        if isinstance(arg, TensorSpec) and all(isinstance(size, int) for size in arg.shape)
    ]


def _rows(reading: Reading) -> int:
    """Return the rows of the first operand of a matrix product, 0 for other ops."""
    if reading.call is None or op_type(reading.call.name) != "gemm":
        return 0
    shape = next((shape for shape in _shapes(reading) if len(shape) >= 2), ())
    return min(int(np.prod(shape[:-1], dtype=np.float64)), LARGEST) if shape else 0


def _lengths(reading: Reading) -> tuple[int, int, int]:
    """Return sequences, queries and keys of an attention of [B, H, N, d] tensors, zeros for other ops."""
    if reading.call is None or op_type(reading.call.name) != "attention":
        return 0, 0, 0
    shapes = _shapes(reading)
    if len(shapes) < 2 or len(shapes[0]) != 4 or len(shapes[1]) != 4:
        return 0, 0, 0
    return shapes[0][0], shapes[0][2], shapes[1][2]


def kinds_of_steps(ops: Ops, process: int, bounds: pl.DataFrame) -> pl.DataFrame | None:
    """Return the steps of a process with their kinds; None if it is not an inference engine. ``bounds`` has
    start and end (ns), by begin. Its rows are returned with kind, requests, new (tokens), all_keys (the keys
    of all requests) and by (the evidence for the kind), null where it is not known."""
    shapes = _Shapes.of(ops)
    attribution = ops.attribution
    ranges = attribution.trace["ranges"]
    rows = ops.rows[(ranges["process"].gather(ops.rows) == process).fill_null(False).to_numpy()]
    if not (shapes.attention.any() or shapes.products.any() if len(rows) else _multiplies(ops)):
        return None
    start = ranges["start"].gather(rows).to_numpy()
    step = np.searchsorted(bounds["start"].to_numpy(), start, side="right") - 1
    inside = (step >= 0) & (start < bounds["end"].to_numpy()[np.maximum(step, 0)])
    rows, step = rows[inside], step[inside]
    reading = attribution.meaning.reading[rows]
    seen = pl.DataFrame(
        {
            "place": step,
            "rows": shapes.products[reading],
            **{
                name: shapes.attention[reading, column]
                for column, name in enumerate(("sequences", "queries", "keys"))
            },
        }
    )
    placed = bounds.with_row_index("place").with_columns(pl.col("place").cast(pl.Int64))
    for told in (_by_attention(seen), _by_products(seen), _by_times(ops, process, bounds)):
        if told is not None:
            return placed.join(told, on="place", how="left").sort("place").drop("place")
    return None


def _multiplies(ops: Ops) -> bool:
    """Whether some kernel is a matrix product, by its name."""
    names = ops.attribution.trace["kernels"]["name"].drop_nulls().unique().cast(pl.String)
    return kinds.MATRIX in kinds.of_kernels(names.to_list())


def launches(ops: Ops) -> Ints:
    """Return the call that launched each kernel, or replayed its graph; -1: not known."""
    kernels = ops.attribution.kernels
    return np.where(kernels.replay >= 0, kernels.replay, kernels.call).astype(np.int64)


def _by_attention(seen: pl.DataFrame) -> pl.DataFrame | None:
    """Return the kind, requests, new tokens and keys of steps, from their attention; None if no step is a
    decode."""
    steps = (
        seen.filter(pl.col("queries") > 0)
        .group_by("place")
        .agg(pl.col("sequences", "queries", "keys").max())
    )
    alone = (pl.col("queries") == 1) & (pl.col("keys") > 1)
    if not steps.select(alone.any()).item() or not len(steps):
        return None
    requests, new = pl.col("sequences"), pl.col("sequences") * pl.col("queries")
    return steps.select(
        "place",
        pl.when(alone).then(pl.lit("decode")).otherwise(pl.lit("prefill")).alias("kind"),
        requests.alias("requests"),
        new.alias("new"),
        (requests * pl.col("keys")).alias("all_keys"),
        pl.lit(BY_ATTENTION).alias("by"),
    )


def _by_products(seen: pl.DataFrame) -> pl.DataFrame | None:
    """Return the same as ``_by_attention``, from the rows of most products; None if they do not form two
    groups."""
    steps = (
        seen.filter(pl.col("rows") > 0)
        .group_by("place")
        .agg(pl.col("rows").mode().max().cast(pl.Int64).alias("new"))
    )
    limit = _split(steps["new"].to_numpy())
    if limit is None:
        return None
    small = pl.col("new") <= limit
    return steps.select(
        "place",
        pl.when(small).then(pl.lit("decode")).otherwise(pl.lit("prefill")).alias("kind"),
        pl.when(small).then("new").alias("requests"),
        "new",
        pl.lit(None, pl.Int64).alias("all_keys"),
        pl.lit(BY_PRODUCTS).alias("by"),
    )


def _by_times(ops: Ops, process: int, bounds: pl.DataFrame) -> pl.DataFrame | None:
    """Return the same as ``_by_attention``, from the device time of the steps; None if it does not form two
    groups."""
    kernels = ops.attribution.trace["kernels"]
    rows = np.flatnonzero((kernels["process"] == process).fill_null(False).to_numpy())
    call = launches(ops)[rows]
    rows, call = rows[call >= 0], call[call >= 0]
    when = ops.attribution.trace["calls"]["start"].gather(call).to_numpy()
    step = np.searchsorted(bounds["start"].to_numpy(), when, side="right") - 1
    lasted = (kernels["end"] - kernels["start"]).gather(rows).fill_null(0).to_numpy()
    time = np.zeros(len(bounds), np.int64)
    np.add.at(time, step[step >= 0], lasted[step >= 0])
    limit = _split(time)
    if limit is None:
        return None
    unknown = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(time))
    return pl.DataFrame(
        {
            "place": np.arange(len(time)),
            "kind": np.where(time <= limit, "decode", "prefill"),
            **dict.fromkeys(("requests", "new", "all_keys"), unknown),
            "by": [BY_TIMES] * len(time),
        }
    )


def _split(values: Ints) -> int | None:
    """Return the largest of the smaller values, if two groups are a factor of four apart and most values
    are in the smaller group; else None."""
    distinct = np.unique(values[values > 0])
    if len(distinct) < 2:
        return None
    ratios = distinct[1:] / distinct[:-1]
    widest = int(np.argmax(ratios))
    limit = int(distinct[widest])
    small = int((values <= limit).sum())
    return (
        limit if ratios[widest] >= _APART and small >= LEAST and 2 * small > len(values) else None
    )
