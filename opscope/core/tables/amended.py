"""Apply what opscope's NVTX adds to a range besides its text: a step's number, and how a range ended.

NVTX keeps every text for ever, so the range of every step has the text ``step`` and carries its number as
payload. A result mark whose text is not a call's result refers to the range around the mark: ``unended`` says
that nothing ended the range; any other text replaces the range's text (the framework ran the op again in
another way).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.schema import STEP, UNCLOSED, UNENDED

from .intervals import Ints, nest

#: Key in the attrs of a range that nothing ended.
UNCLOSED_MARK: Final = UNCLOSED.strip("{}")
_OURS: Final = "opscope."
_STEPS: Final = "opscope.step"


def amended(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ``ranges`` with steps named ``step 5`` and result marks of this kind applied and removed.

    Columns are those of the trace table; all but process, thread, start, end, domain and text may be
    absent.
    """
    return _by_marks(_number(ranges))


def unclosed(attrs: pl.Expr) -> pl.Expr:
    """Return ``attrs`` (JSON) with the flag of a range that nothing ended."""
    more = UNCLOSED.removeprefix("{")
    members = attrs.str.strip_chars_end().str.strip_suffix("}")
    return (
        pl.when(attrs.is_null() | (members.str.strip_chars() == "{"))
        .then(pl.lit(UNCLOSED))
        .otherwise(pl.concat_str(members, pl.lit("," + more)))
    )


def _number(ranges: pl.DataFrame) -> pl.DataFrame:
    if "payload" not in ranges.columns or not ranges.height:
        return ranges
    mine = (
        (ranges["domain"] == _STEPS) & (ranges["text"] == STEP) & ranges["payload"].is_not_null()
    ).fill_null(False)
    rows = np.flatnonzero(mine.to_numpy())
    if not len(rows):
        return ranges
    named = ranges["payload"].gather(rows).cast(pl.String)
    text = (pl.Series([STEP + " "], dtype=pl.String).new_from_index(0, len(rows)) + named).cast(
        pl.Categorical
    )
    index = np.full(ranges.height, -1, np.int64)
    index[rows] = np.arange(len(rows))
    return ranges.with_columns(_exchange(ranges["text"], mine, text, index))


def _exchange(texts: pl.Series, mine: pl.Series, others: pl.Series, ints: Ints) -> pl.Series:
    """Return ``texts`` in which the texts of ``mine`` are replaced by those of ``others``, at the
    positions ``ints``."""
    index = pl.Series(ints, dtype=pl.Int64).set(~mine, None)
    exchanged: pl.Series = texts.zip_with(~mine, others.gather(index).alias(texts.name))
    return exchanged


def _by_marks(ranges: pl.DataFrame) -> pl.DataFrame:
    if not {"kind", "category"} <= set(ranges.columns):
        return ranges
    results = np.flatnonzero(
        ((ranges["kind"] == "mark") & (ranges["category"] == "result")).fill_null(False).to_numpy()
    )
    texts = ranges["text"].gather(results).cast(pl.String)
    domains = ranges["domain"].gather(results).cast(pl.String)
    wanted = ~texts.str.starts_with("->") & domains.str.starts_with(_OURS)
    marks = results[wanted.fill_null(False).to_numpy()]
    if not len(marks):
        return ranges
    new_texts: dict[int, str] = {}
    keys = ranges.select(
        pl.col("process", "thread").fill_null(-1).cast(pl.Int64),
        pl.col("domain").to_physical().fill_null(0).cast(pl.Int64),
    ).to_numpy()
    pushed = (ranges["kind"] == "pushpop").fill_null(False).to_numpy()
    start, end = ranges["start"].to_numpy(), ranges["end"].to_numpy()
    for key in np.unique(keys[marks], axis=0):
        here = marks[(keys[marks] == key).all(axis=1)]
        rows = np.flatnonzero((keys == key).all(axis=1) & pushed)
        innermost = nest(start[rows], end[rows]).innermost(start[here])
        for mark, row in zip(here[innermost >= 0], rows[innermost[innermost >= 0]], strict=True):
            new_texts[int(row)] = str(ranges["text"][int(mark)])
    left = np.ones(ranges.height, bool)
    left[marks] = False
    return _with_texts(ranges, new_texts).filter(pl.Series(left))


def _with_texts(ranges: pl.DataFrame, new_texts: dict[int, str]) -> pl.DataFrame:
    unended = [row for row, text in new_texts.items() if text == UNENDED]
    if unended:
        if "attrs" not in ranges.columns:
            ranges = ranges.with_columns(pl.lit(None, pl.String).alias("attrs"))
        mine: Any = pl.int_range(pl.len()).is_in(unended)
        attrs = pl.col("attrs")
        ranges = ranges.with_columns(
            pl.when(mine).then(unclosed(attrs)).otherwise(attrs).alias("attrs")
        )
    others = {row: text for row, text in new_texts.items() if text != UNENDED}
    if others:
        rows = np.array(list(others), np.int64)
        index = np.full(ranges.height, -1, np.int64)
        index[rows] = np.arange(len(rows))
        texts = pl.Series(list(others.values()), dtype=pl.String).cast(pl.Categorical)
        ranges = ranges.with_columns(_exchange(ranges["text"], pl.Series(index >= 0), texts, index))
    return ranges
