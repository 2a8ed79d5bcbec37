"""Read the tables of MindSpore's profiler that have totals of each op and no times.

* ``aicore_intermediate_N_detail.csv`` and ``_type.csv`` (Ascend, 1.x; mean ms of an execution, sums of
  those by type:
  ``mindspore/python/mindspore/profiler/parser/integrator.py``);
* ``gpu_op_detail_info``, ``gpu_op_type_info`` (``mindspore/ccsrc/profiler/device/data_saver.h``) and
  ``gpu_activity_data`` (``mindspore/ccsrc/plugin/device/gpu/hal/profiler/gpu_data_saver.h``);
* ``dynamic_shape_info_N.json``: durations of each step, in order, without times;
* CANN's ``op_statistic.csv``.

Their executions are placed one after another from 0: each is as long as the file says, but its start is made
up; the trace's origin and a note say this.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.readers.errors import BadInput
from opscope.readers.rows import Note

from . import nodes
from .tables import csv_frame, text

MADE_UP: Final = (
    "this file has totals and no times: its executions are shown one after another from 0, each with its "
    "mean duration, so that their sums are right; when they began, and what ran side by side, is not known"
)
#: The most executions made from a table's counts; beyond it, one row represents all executions of an op.
_MOST: Final = 1_000_000


@dataclass(slots=True)
class Totals:
    """``ran``: ``nodes.RAN`` with made-up times. ``steps``: number, start, end of steps, made up too."""

    ran: pl.DataFrame
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    notes: list[tuple[str, int]] = field(default_factory=list)


def read(path: Path, kind: str, device: int) -> Totals:
    """Return the executions in a table of totals of this kind (``files.TOTALS``). Raises BadInput."""
    if kind == "dynamic":
        return _dynamic(path, device)
    uneven: list[Note] = []
    frame = csv_frame(path, uneven, totals=True)
    totals_read = _read(path, kind, device, frame)
    totals_read.notes += [(what, counts) for _, what, counts in uneven]
    return totals_read


def _read(path: Path, kind: str, device: int, frame: pl.DataFrame) -> Totals:
    if kind in ("aicore", "aicore_type"):
        node = _column(
            path,
            frame,
            "full_op_name",
            "full_kernel_name",
            "full_kernel_time",
            "op_type",
            "kernel_type",
        )
        # the mean of one execution, or the sum over a type
        spent = _ns(path, frame, 1e6, "execution_time", "total_time")
        counts = pl.Series([1], dtype=pl.Int64).new_from_index(0, len(frame))
        if kind == "aicore_type":
            counts = _count(frame, "execution_frequency")
        return _lay(node, spent, counts, device, "AI_CORE")
    if kind == "activity":
        node = _column(path, frame, "op_full_name")
        spent, counts = _ns(path, frame, 1e3, "total_duration(us)"), _count(frame, "occurrences")
        totals_read = _lay(node, spent, counts, device, "GPU", frame["name"])
        stream = (
            frame["stream_id"].cast(pl.Int64, strict=False)
            if "stream_id" in frame.columns
            else None
        )
        if stream is not None:
            stream_of_name = pl.DataFrame({"name": frame["name"], "at": stream}).unique(
                "name", keep="first"
            )
            joined = totals_read.ran.join(
                stream_of_name, on="name", how="left", maintain_order="left"
            )
            totals_read.ran = joined.with_columns(pl.col("at").alias("stream")).drop("at")
        return totals_read
    if kind == "gpu_detail":
        node = _column(path, frame, "op_full_name", "full_op_name")
        busy = "cuda_activity_cost_time(us)"
        spent = _ns(path, frame, 1e3, busy if busy in frame.columns else "op_total_time(us)")
        counts = _count(frame, "op_occurrences")
        totals_read = _lay(node, spent, counts, device, "GPU")
        if busy not in frame.columns:
            totals_read.notes.append(
                ("times are those of the host: this version's file has no others", 1)
            )
        return totals_read
    if kind == "gpu_type":
        node = _column(path, frame, "op_type")
        totals_read = _lay(
            node,
            _ns(path, frame, 1e3, "total_time(us)"),
            _count(frame, "type_occurrences"),
            device,
            "GPU",
        )
        totals_read.notes.append(("times are those of the host: gpu_op_type_info has no others", 1))
        return totals_read
    core = frame["Core Type"] if "Core Type" in frame.columns else None
    node = _column(path, frame, "OP Type")
    totals_read = _lay(
        node, _ns(path, frame, 1e3, "Total Time(us)"), _count(frame, "Count"), device, None
    )
    if core is not None:
        cores = pl.DataFrame({"node": node, "of": core}).unique("node", keep="first")
        joined = totals_read.ran.join(cores, on="node", how="left", maintain_order="left")
        totals_read.ran = joined.with_columns(pl.col("of").alias("core")).drop("of")
    return totals_read


def _column(path: Path, frame: pl.DataFrame, *names: str) -> pl.Series:
    for name in names:
        if name in frame.columns:
            return frame[name]
    raise BadInput(path, f"no column {' or '.join(names)}")


def _ns(path: Path, frame: pl.DataFrame, factor: float, *names: str) -> pl.Series:
    """Return a column of times in ns. ``factor``: ns per unit."""
    value = _column(path, frame, *names).str.strip_chars().cast(pl.Float64, strict=False)
    if len(value) and value.is_null().all():
        raise BadInput(path, f"no number in the column {names[0]}")
    fits = value.is_finite() & (value >= 0) & (value < 1e17 / factor)
    ns = pl.when(fits).then((value * factor).round()).cast(pl.Int64)
    return pl.select(ns).to_series()


def _count(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns:
        return pl.Series([1] * len(frame), dtype=pl.Int64)
    value = frame[name].str.strip_chars().cast(pl.Float64, strict=False)
    fits = pl.when(value.is_finite() & (value < 1e15)).then(value)
    return pl.select(fits.cast(pl.Int64, strict=False).fill_null(1).clip(1)).to_series()


def _lay(
    node: pl.Series,
    spent: pl.Series,
    counts: pl.Series,
    device: int,
    core: str | None,
    name: pl.Series | None = None,
) -> Totals:
    """Place each op's executions one after another; the last execution of an op absorbs the rounding."""
    frame = pl.DataFrame(
        {"node": node, "spent": spent, "many": counts, "own": node if name is None else name}
    )
    lost = int(frame["spent"].is_null().sum())
    frame = frame.drop_nulls(["spent", "node"])
    notes = [("ops whose time is not a number, left out", lost)] if lost else []
    if frame["many"].sum() > _MOST:
        frame = frame.with_columns(pl.lit(1, pl.Int64).alias("many"))
        notes.append(
            ("executions are not shown singly, as there are too many: a row is all of an op", 1)
        )
    each = frame.with_columns(pl.int_ranges("many").alias("turn")).explode("turn")
    each_duration = pl.col("spent") // pl.col("many")
    last = pl.col("turn") == pl.col("many") - 1
    each = each.with_columns(
        pl.when(last)
        .then(pl.col("spent") - each_duration * (pl.col("many") - 1))
        .otherwise(each_duration)
        .alias("duration")
    )
    end = pl.col("duration").cum_sum()
    ran = each.select(
        pl.lit(device).alias("device"),
        (end - pl.col("duration")).alias("start"),
        end.alias("end"),
        pl.col("own").str.extract(r"([^/]*)$", 1).alias("name")
        if name is None
        else pl.col("own").alias("name"),
        "node",
        pl.lit(core, pl.String).alias("core"),
    )
    return Totals(nodes.conform(ran), notes=notes)


# ------------------------------------------------------------------------------ dynamic shapes


class _Op(msgspec.Struct):
    op_name: str = ""
    op_type: str = ""
    op_side: str = ""
    dur: float | None = None
    shape_info: list[str] | str | None = None


class _Info(msgspec.Struct):
    operator: dict[str, list[_Op]] = {}
    kernel: dict[str, Any] = {}


def _dynamic(path: Path, device: int) -> Totals:
    try:
        info = msgspec.json.decode(text(path).encode(), type=_Info)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(path, f"not what MindSpore tells of dynamic shapes: {error}") from None
    rows: list[dict[str, object]] = []
    steps: list[tuple[int, int, int]] = []
    time = lost = 0
    for number, ops in info.operator.items():
        first = time
        for op in ops:
            if op.dur is None or not 0 <= op.dur < 1e13:
                lost += 1
                continue
            spent = round(op.dur * 1000)
            shapes = op.shape_info if isinstance(op.shape_info, list) else []
            rows.append({"device": device, "start": time, "end": time + spent, "name": op.op_name,
                         "node": op.op_name, "kind": op.op_type or None, "core": op.op_side.upper() or None,
                         "inputs": nodes.shapes_text([(shape, "", "") for shape in shapes])})  # fmt: skip
            time += spent
        if number.isdigit() and len(number) < 18 and time > first:
            steps.append((int(number), first, time))
    if not rows:
        raise BadInput(path, "no operator with a duration")
    notes = [("ops whose time is not a number, left out", lost)] if lost else []
    return Totals(nodes.frame(rows), steps, notes)
