"""Interpret roctx ranges: how they nest, and which texts are opscope's own.

roctx has no domains and no categories. A text in opscope's own form that contains a tensor is an op's; if a
program writes such texts, its ranges ``step N`` are steps. All other texts are read as in other formats
(PyTorch's ``aten::mm, seq = 3``, a user's own words).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import OpCall, TensorSpec
from opscope.core.tables.columns import distinct_values

#: The domain of roctx ranges is NVTX's default domain: roctx has no others, and PyTorch writes its ops there.
#: And the domain of ranges with opscope's texts.
ROCTX: Final = ""
OWN: Final = "opscope.roctx"
#: A part that every text of opscope's with a tensor has: ``f32[64,32]``.
_TENSOR: Final = r"\b(?:f64|tf?32|f32|f16|bf16|f8e\w+|f4e2m1|[iu](?:64|32|16|8|4)|bool|c64|c128)\["
_STEP: Final = r"^step -?[0-9]{1,18}$"


def ranges_of(frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``ranges``: ids in order of time, kinds, domains. ``kind`` may be null if a file lacks it."""
    frame = frame.sort("start", maintain_order=True)
    if "domain" not in frame.columns:
        frame = frame.with_columns(pl.lit(ROCTX).alias("domain"))
    if "category" not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.String).alias("category"))
    frame = frame.with_columns(pl.col("text").cast(pl.Categorical))
    frame = _own(frame)
    if "kind" not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.String).alias("kind"))
    return frame.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.col("thread").alias("end_thread"),
        _kinds(frame).alias("kind"),
    )


def _own(frame: pl.DataFrame) -> pl.DataFrame:
    distinct = distinct_values(frame["text"]).cast(pl.String).drop_nulls()
    likely = distinct.filter(distinct.str.contains(_TENSOR))
    ours = [text for text in likely.to_list() if _is_call(text)]
    if not ours:
        return frame
    text = pl.col("text").cast(pl.String)
    roctx = pl.col("domain") == ROCTX
    step = roctx & text.str.contains(_STEP)
    own = roctx & (text.is_in(ours) | step)
    return frame.with_columns(
        pl.when(own).then(pl.lit(OWN)).otherwise("domain").alias("domain"),
        pl.when(step).then(pl.lit("step")).otherwise("category").alias("category"),
    )


def _is_call(text: str) -> bool:
    try:
        call = parse(text)
    except RangeTextError:
        return False
    return _has_tensor(call)


def _has_tensor(call: OpCall) -> bool:
    leaves = (*call.input_leaves(), *(call.output_leaves() or ()))
    return any(isinstance(leaf, TensorSpec) for leaf in leaves)


def _kinds(frame: pl.DataFrame) -> pl.Series:
    """Return each range's kind: as recorded, else a mark if it has no length, else according to its
    nesting. roctxRangeStart may be stopped by any thread: rocprofv3's CSV writes its ranges on thread 0. A
    range that crosses the end of another range cannot have been pushed and popped."""
    crosses = _crossing(frame)
    return frame.select(
        pl.coalesce(
            pl.col("kind").cast(pl.String),
            pl.when(pl.col("end") == pl.col("start"))
            .then(pl.lit("mark"))
            .when((pl.col("thread") == 0) | pl.lit(crosses))
            .then(pl.lit("startend"))
            .otherwise(pl.lit("pushpop")),
        ).cast(pl.Categorical)
    ).to_series()


def _crossing(frame: pl.DataFrame) -> pl.Series:
    """Return for each range, by start, whether it begins inside another range of its thread and ends after
    it.

    Ends are compared with the earliest end of the open ranges: the innermost one's, if all nest.
    """
    flags = np.zeros(len(frame), bool)
    if _nest(frame):
        return pl.Series("crosses", flags)
    rows = frame.select(
        "process", pl.col("thread").fill_null(-1), "start", pl.col("end").fill_null(1 << 62)
    ).with_row_index("row")
    rows = rows.drop_nulls("start")  # ranges without a known begin are left out later
    for _, part in rows.group_by("process", "thread", maintain_order=True):
        part = part.sort("start", "end", descending=[False, True], maintain_order=True)
        places = part["row"].to_list()
        opened: list[int] = []
        for index, start, end in zip(places, part["start"], part["end"], strict=True):
            while opened and opened[-1] <= start:
                opened.pop()
            if opened and end > opened[-1]:
                flags[index] = True
                continue
            opened.append(end)
    return pl.Series("crosses", flags)


def _nest(frame: pl.DataFrame) -> bool:
    """Whether the ranges of each thread nest: then starts and ends alternate at each depth, pair by pair."""
    ordered = frame.select(
        *(pl.col(name).fill_null(-1).cast(pl.Int64).alias(name) for name in ("process", "thread")),
        "start",
        "end",
    ).filter(pl.col("end") > pl.col("start"))
    count = len(ordered)
    process, thread, start, end = (column.to_numpy() for column in ordered.get_columns())
    time, tie = np.concatenate((start, end)), -np.concatenate((end, start))
    opens = np.repeat([1, 0], count)
    order = np.lexsort((tie, opens, time, np.tile(thread, 2), np.tile(process, 2)))
    change = np.where(opens[order] == 1, 1, -1)
    depth = np.cumsum(change) + (change < 0)
    by_depth = np.argsort(depth, kind="stable")
    ids = np.tile(np.arange(count), 2)[order][by_depth]
    return bool((ids[0::2] == ids[1::2]).all())
