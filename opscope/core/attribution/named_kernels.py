"""Rule 0: make an op range for each execution of an op that kernels, copies or sets name (``op_key``).

A kernel that names its op belongs to it, whatever launched the kernel. Because each execution is made into a
range, it counts in all results that are computed from ops. The range spans the launches of its kernels, on
the launching thread, if the trace has the launches; else it has length 0, because no CPU time is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.known import NamedOps
from opscope.core.dialects import MINDSPORE, TENSORRT
from opscope.core.rangetext import format_call
from opscope.core.schema import OpCall
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace, conform, next_range_id
from opscope.core.tensorrt_layers import FRAMEWORK

_TF_OP: Final = re.compile(r"[^\s:]+:[A-Za-z_]\w*\Z")
#: Columns that identify a stream; the ops of one stream follow each other.
_STREAM: Final = ("process", "device", "stream")
#: The domains of ops by the framework of their specs; other frameworks get XLA's.
_DOMAINS: Final = {"mindspore": MINDSPORE, FRAMEWORK: TENSORRT}


def named_ranges(trace: Trace, links: Mapping[str, NDArray[np.int32]]) -> tuple[Trace, NamedOps]:
    """Return ``trace`` with a range for each execution of an op that its work names, and the range of each.

    ``links``: per kernel, copy and set, the row of ``calls`` that launched it, or -1. A kernel that names no
    op has the op of the other kernels with its name (inferred).
    """
    kernels, memops, ranges = trace["kernels"], trace["memops"], trace["ranges"]
    # an expression: a column of nulls takes no memory until it is read itself
    has_key, copies = (
        table.select(pl.col("op_key").is_not_null()).to_series().to_numpy()
        for table in (kernels, memops)
    )
    if not has_key.any() and not copies.any():
        none, no = (
            np.broadcast_to(np.int32(NONE), len(kernels)),
            np.broadcast_to(False, len(kernels)),
        )
        return trace, NamedOps(none, no, len(ranges))
    op, copied = (np.full(len(table), NONE, np.int32) for table in (kernels, memops))
    keyed = _by_name(kernels)
    rows, sets = np.flatnonzero(keyed["op_key"].is_not_null().to_numpy()), np.flatnonzero(copies)
    keyed = pl.concat(
        table[of].select(*_STREAM, "start", pl.col("op_key").cast(pl.String), name)
        for table, of, name in (
            (keyed, rows, pl.col("name").cast(pl.String)),
            (memops, sets, pl.format("{} {}", "kind", "bytes").alias("name")),
        )
    ).with_columns(pl.col("name").cast(pl.Categorical))
    execution = _executions(keyed)
    op[rows] = len(ranges) + execution[: len(rows)]
    copied[sets] = len(ranges) + execution[len(rows) :]
    link = np.concatenate((links["kernels"][rows], links["memops"][sets]))
    made_ranges = (
        _spans(keyed, link, trace["calls"], execution)
        .join(_texts(trace, keyed), on=["process", "key"], how="left", nulls_equal=True)
        .sort("execution")
    )
    all_ranges = pl.concat([ranges, _as_ranges(made_ranges, ranges)])
    return trace.replace(ranges=all_ranges), NamedOps(op, (op >= 0) & ~has_key, len(ranges), copied)


def _spans(
    kernels: pl.DataFrame, call: NDArray[np.int32], calls: pl.DataFrame, execution: Ints
) -> pl.DataFrame:
    """Return per execution its process, key, and the thread, start and end (ns) of its launches ``call``.

    Without a launch, it starts and ends when its first kernel starts.
    """
    launched = call >= 0
    start = kernels["start"].to_numpy()
    end = start
    thread = pl.Series("thread", [None], dtype=pl.Int64).new_from_index(0, len(kernels))
    if launched.any():
        at = pl.Series(np.where(launched, call, 0))
        start = np.where(launched, calls["start"].gather(at).to_numpy(), start)
        end = np.where(launched, calls["end"].gather(at).to_numpy(), start)
        thread = calls["thread"].gather(at).zip_with(pl.Series(launched), thread)
    each = pl.DataFrame(
        {
            "execution": execution,
            "process": kernels["process"],
            "thread": thread,
            "start": start,
            "end": end,
            "key": kernels["op_key"].cast(pl.String),
        }
    )
    of_execution = each.group_by("execution").agg(
        pl.col("process", "key").first(),
        pl.col("thread").drop_nulls().first(),
        pl.col("start").min(),
        pl.col("end").max(),
    )
    return of_execution.sort("execution")


def _as_ranges(table: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return rows for the table of ranges, with ids that follow those of ``ranges``."""
    begin = next_range_id(ranges)
    added = table.select(
        (pl.int_range(pl.len(), dtype=pl.Int64) + begin).alias("id"),
        "process",
        "thread",
        pl.col("thread").alias("end_thread"),
        "start",
        "end",
        "domain",
        "text",
        pl.lit("pushpop").alias("kind"),
    )
    return conform("ranges", added).select(ranges.columns)


def _by_name(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return ``kernels`` with an op for those that name none, if all others of their name in the process
    name one and the same op.

    Profilers sometimes lose the op of a kernel. XLA names the kernels that it generates after their
    instruction, and a library's kernel that serves only one op identifies it as well.
    """
    by = ["process", "name"]
    keyed = kernels.lazy().filter(pl.col("op_key").is_not_null()).group_by(by)
    only = keyed.agg(pl.col("op_key").first().alias("only"), pl.col("op_key").n_unique().alias("n"))
    found = kernels.lazy().join(
        only.filter(pl.col("n") == 1), on=by, how="left", nulls_equal=True, maintain_order="left"
    )
    key = pl.coalesce("op_key", pl.when(pl.col("name").is_not_null()).then("only"))
    return found.with_columns(key.alias("op_key")).drop("only", "n").collect()


def _executions(kernels: pl.DataFrame) -> Ints:
    """Return for each kernel the number of the execution of its op.

    The kernels of one execution follow each other on their stream. If an op runs twice in a row, the name
    of its first kernel marks the second execution.
    """
    order = kernels.select(
        pl.struct(*_STREAM, "start").rank("ordinal").cast(pl.Int64) - 1
    ).to_series()
    by_time = np.empty(len(kernels), np.int64)
    by_time[order.to_numpy()] = np.arange(len(kernels))
    placed = kernels[by_time]
    change = placed.select(
        pl.any_horizontal(
            pl.col(name).ne_missing(pl.col(name).shift(1)) for name in (*_STREAM, "op_key")
        )
    ).to_series()
    new = change.to_numpy().copy()
    new[0] = True
    name = placed["name"].to_physical().fill_null(0).to_numpy()
    first = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    new |= name == name[first]
    number = np.cumsum(new) - 1
    execution = np.empty(len(kernels), np.int64)
    execution[by_time] = number
    return execution


def _texts(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return (process, key, domain, text): the range of each distinct key, with the text of its spec."""
    wanted = kernels.select(
        pl.col("process"), pl.col("op_key").cast(pl.String).alias("key")
    ).unique()
    framework = pl.col("framework").cast(pl.String)
    figures = framework.str.starts_with(f"{FRAMEWORK}.").fill_null(False)
    specs = (
        trace["specs"]
        .filter(~figures)
        .select(
            "process",
            pl.concat_str(
                pl.col("graph").cast(pl.String).fill_null(""),
                pl.lit("/"),
                pl.col("key").cast(pl.String),
            ).alias("key"),
            pl.col("text").cast(pl.String),
            (framework == FRAMEWORK).fill_null(False).alias("tensorrt"),
            pl.col("key").cast(pl.String).alias("layer"),
            pl.col("framework")
            .cast(pl.String)
            .replace_strict(_DOMAINS, default=None, return_dtype=pl.String)
            .alias("theirs"),
        )
    )
    specs = specs.unique(["process", "key"], keep="last", maintain_order=True)
    joined = wanted.join(specs, on=["process", "key"], how="left", nulls_equal=True)
    unknown = [
        (key, *_unknown(key)) for key in joined.filter(pl.col("text").is_null())["key"].unique()
    ]
    named = pl.DataFrame(
        unknown, schema={"key": pl.String, "domain": pl.String, "own": pl.String}, orient="row"
    )
    # the range is named after the layer, as in TensorRT's own ranges; the call is in the layer's spec
    layer = pl.col("tensorrt").fill_null(False)
    return joined.join(named, on="key", how="left").select(
        "process",
        "key",
        pl.coalesce("theirs", "domain", pl.lit("xla")).alias("domain"),
        pl.when(layer).then("layer").otherwise(pl.coalesce("text", "own")).alias("text"),
    )


def _unknown(key: str) -> tuple[str, str]:
    """Return domain and text for a key without a spec: TensorFlow's form, or a bare name."""
    if _TF_OP.match(key):
        return "TSL", key
    return "xla", format_call(OpCall(key))
