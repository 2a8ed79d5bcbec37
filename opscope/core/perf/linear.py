"""Price one call of attention over a cache for the sums of many steps at once.

A server's steps all have different sums, so there are as many costs as steps, and pricing a call takes 0.1
ms. But FLOPs and bytes are linear in the sums (``cached.LENGTHS``) unless a window bounds them. The slopes
are taken from the model itself. Some rows are also priced one by one as a check; if any differs, all rows are
priced one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.schema import OpCall, ParamValue
from opscope.core.tables.columns import grouped
from opscope.core.tables.intervals import Ints

from . import tensorcore
from .cached import LENGTHS, WINDOW

#: Fewer rows than this are priced one by one.
_FEWEST: Final = 64
#: Number of rows, besides the first and the last, that are priced one by one, too, as a check.
_CHECKED: Final = 16
#: Rows with larger figures are priced one by one, because their sums may not fit in 64 bits.
_LARGEST: Final = 1 << 60
_FIGURES: Final = (
    "matrix_flops",
    "vector_flops",
    "flops",
    "masked_flops",
    "bytes_read",
    "bytes_written",
    "bytes",
)
Params = tuple[tuple[str, ParamValue], ...]
Pricing = Callable[[Sequence[OpCall]], pl.DataFrame]


def columns(
    calls: Sequence[OpCall], sums: Ints, which: Ints, more: Sequence[Params], price: Pricing
) -> pl.DataFrame:
    """Return the prices of the calls, each with a row of ``sums`` (``LENGTHS``) and with the parameters that
    its number in ``which`` has in ``more``. Rows of one call (the same object) that differ only in their sums
    are priced together."""
    ids = np.fromiter(map(id, calls), np.int64, len(calls))
    own = np.unique(ids, return_inverse=True)[1].reshape(-1)
    parts: list[pl.DataFrame] = []
    places: list[Ints] = []
    for key, rows in grouped(own * len(more) + which):
        call, rest = calls[int(rows[0])], more[key % len(more)]
        table = _together(call, sums[rows], rest, price)
        if table is None:
            lengths = map(tuple, sums[rows].tolist())
            table = price([with_params(call, ((LENGTHS, row), *rest)) for row in lengths])
        parts.append(table)
        places.append(rows)
    return pl.concat(parts)[np.argsort(np.concatenate(places))] if parts else price([])


def _together(call: OpCall, sums: Ints, rest: Params, price: Pricing) -> pl.DataFrame | None:
    """Return the costs of a call for each row of sums; None if they are not linear in the sums."""
    window = dict(rest).get(WINDOW)
    if len(sums) < _FEWEST or (isinstance(window, int) and window > 0):
        return None
    steps = sums[0] + 2 * np.eye(sums.shape[1], dtype=np.int64)
    checked = np.unique(np.linspace(0, len(sums) - 1, _CHECKED).astype(int))
    priced = np.concatenate((sums[:1], steps, sums[checked]))
    exact = price([with_params(call, (*rest, (LENGTHS, tuple(row)))) for row in priced.tolist()])
    if exact.select(_FIGURES).null_count().sum_horizontal().item():
        return None
    figures = exact.select(_FIGURES).to_numpy()
    slopes = figures[1 : len(steps) + 1] - figures[0]
    apart = sums - sums[0]
    if (np.abs(apart.astype(float)) @ np.abs(slopes.astype(float)) > _LARGEST).any():
        return None
    twice: Ints = apart @ slopes
    values = figures[0] + twice // 2
    # for a tiny product, a change affects more than the figures
    if (twice % 2).any() or values.min() < 0 or values[:, 0].min() <= 2 * tensorcore.TINY:
        return None
    series = {name: pl.Series(name, values[:, n], pl.Int64) for n, name in enumerate(_FIGURES)}
    begin, end = f'{{"{exact["dtype"][0]}": ', "}"
    by_dtype = pl.concat_str([pl.lit(begin), pl.col("flops").cast(pl.String), pl.lit(end)])
    same = exact[np.zeros(len(sums), np.int64)]
    table = same.with_columns(**series).with_columns(by_dtype.alias("flops_by_dtype"))
    return table if table[checked].equals(exact[len(steps) + 1 :]) else None


def with_params(call: OpCall, params: Params) -> OpCall:
    return replace(call, params=(*call.params, *params))
