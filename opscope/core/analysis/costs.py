"""The cost of each op of a trace: the model's figures once per distinct call, and which op counts.

In a nest of ops (``aten::linear`` around ``aten::addmm`` around a copy) only one level counts:

1. of matrix ops (gemm, convolution, attention, recurrent) the innermost whose cost is known;
2. of the others the innermost whose cost is known and not nothing, unless a counting matrix op
   encloses it: what a matrix op does inside itself is its own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import perf
from opscope.core.attribute import Attribution
from opscope.core.columns import at, gather
from opscope.core.intervals import NONE, Ints
from opscope.core.schema import OpCall

MATRIX_FAMILIES: Final = frozenset({"gemm", "conv", "attention", "recurrent"})
_NO_CALL: Final = OpCall("")


@dataclass(slots=True)
class Costs:
    """Costs of the ops of a trace.

    ``catalogue``: one row per reading, the columns of ``perf.columns``. ``canonical``: per range
    row, whether this op counts. ``free``: per range row, whether this op is known to cost nothing
    (a view, an allocation).
    """

    catalogue: pl.DataFrame
    canonical: NDArray[np.bool_]
    free: NDArray[np.bool_]
    _attribution: Attribution

    def costing(self, rows: Ints) -> Ints:
        """For each op row the op whose cost its kernels share, or -1 where none is known."""
        found = self._attribution.climb(rows, self.canonical)
        free = (found < 0) & (rows >= 0)
        free[free] = self.free[rows[free]]
        return np.where(free, rows, found)


def costs(attribution: Attribution) -> Costs:
    """The cost model's figures for every distinct call, and the ops that count."""
    meaning = attribution.meaning
    calls = [reading.call or _NO_CALL for reading in meaning.readings]
    catalogue = perf.columns(calls, [reading.direction for reading in meaning.readings])
    known = catalogue["matrix_flops"].is_not_null().to_numpy()
    something = (
        pl.sum_horizontal(
            catalogue[name].fill_null(0)
            for name in ("matrix_flops", "vector_flops", "bytes_read", "bytes_written")
        )
        > 0
    )
    something_known = catalogue.select(something).to_series().to_numpy() & known
    matrix = catalogue["family"].is_in(list(MATRIX_FAMILIES)).fill_null(False).to_numpy() & known
    ops = np.flatnonzero(attribution.is_op)
    reading = meaning.reading[ops]
    canonical = np.zeros(len(attribution.is_op), bool)
    rows = ops[matrix[reading]]
    canonical[rows] = ~attribution.above(rows)[rows]
    others = ops[something_known[reading] & ~matrix[reading]]
    outside = attribution.climb(others, canonical) == NONE
    others = others[outside]
    canonical[others] = ~attribution.above(np.flatnonzero(canonical))[others]
    others = others[canonical[others]]
    canonical[others] = ~attribution.above(others)[others]
    free = (known & ~something_known)[meaning.reading] & attribution.is_op
    return Costs(catalogue, canonical, free, attribution)


def shared_out(total: pl.Series, group: Ints, duration: Ints) -> pl.Series:
    """``total`` (one per row, equal within a group) split over its group's rows by duration.

    The parts of a group are integers whose sum is exactly the total. Rows with group -1 or a null
    total are null.
    """
    frame = pl.DataFrame({"group": group, "duration": duration, "total": total}).with_columns(
        pl.when(pl.col("group") >= 0).then("total").alias("total")
    )
    whole = pl.col("duration").sum().over("group")
    share = (
        pl.when(whole > 0)
        .then(pl.col("duration").cum_sum().over("group") / whole)
        .otherwise(pl.int_range(1, pl.len() + 1).over("group") / pl.len().over("group"))
    )
    done = (pl.col("total") * share).round().cast(pl.Int64)
    last = pl.int_range(pl.len()).over("group") == pl.len().over("group") - 1
    done = pl.when(last).then("total").otherwise(done)
    column: pl.Series = frame.select(
        (done - done.shift(1).over("group").fill_null(0)).alias(total.name)
    ).to_series()
    return column


def cost_column(costs: Costs, name: str, rows: Ints) -> pl.Series:
    """One column of the catalogue for op rows (-1: null)."""
    return gather(costs.catalogue[name], at(costs._attribution.meaning.reading, rows))
