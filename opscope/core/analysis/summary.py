"""The summary: wall time, busy time, what was attributed and what was not, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import polars as pl

from opscope.core.analysis.windows import captured_steps, captured_time
from opscope.core.columns import matching
from opscope.core.intervals import Ints, intersect, merge, subtract, union_length
from opscope.core.schema import COMPILE
from opscope.core.trace import Trace

SCHEMA: Final = {
    "wall_time": pl.Int64,
    "window_time": pl.Int64,
    "window_steps": pl.Int64,
    "device_busy": pl.Int64,
    "kernel_time": pl.Int64,
    "attributed_time": pl.Int64,
    "unattributed_time": pl.Int64,
    "attributed_share": pl.Float64,
    "launched_share": pl.Float64,
    "flops_share": pl.Float64,
    "bytes_share": pl.Float64,
    "tensor_core_time": pl.Int64,
    "steps": pl.Int64,
    "processes": pl.Int64,
    "devices": pl.Int64,
    "kernels": pl.Int64,
    "own_time": pl.Int64,
    "own_share": pl.Float64,
    "own_steps_share": pl.Float64,
}
#: Op types whose FLOPs are known to be none, so that they never count as a gap.
FREE: Final = ("communication", "copy", "view")


def summary(
    trace: Trace, kernels: pl.DataFrame, memops: pl.DataFrame, ops: pl.DataFrame | None
) -> pl.DataFrame:
    """One row: times in ns, shares in 0 … 1, null where the trace cannot tell.

    ``kernel_time`` = ``attributed_time`` + ``unattributed_time``, exactly. On a GPU it is the summed
    duration of the kernels. ``ops`` is given for a CPU-only profile, where it is the self time of
    the ops, and what is unattributed is thread time inside steps outside any op. ``window_time`` is
    how long kernels were captured, ``window_steps`` how many steps lie in that; null where all was.
    All times of kernels, and on a CPU all of ops, are then of the window.
    ``launched_share``: device time (kernels, copies, sets) that has a launch record over all;
    ``flops_share``: device time with known FLOPs over that with a launch record; ``bytes_share``:
    the same of known bytes. What the two leave out is in ``coverage.missing_costs``. ``own_time`` is
    opscope's own, all parts and processes; ``own_share`` that over the time that they recorded,
    ``own_steps_share`` what of it fell into steps over the steps' time.
    """
    row: dict[str, Any] = dict.fromkeys(SCHEMA)
    steps = ended_steps(trace["ranges"])
    window = captured_time(trace)
    row |= {
        "wall_time": _wall_time(trace),
        "window_time": window,
        "window_steps": None if window is None else len(captured_steps(trace, steps)),
        "steps": len(steps),
        "processes": len(trace["processes"]) or _distinct(trace, "process"),
        "devices": _devices(kernels, memops),
        "kernels": len(kernels) if trace.has("kernels") else None,
    }
    row |= _own(trace["own_costs"])
    if ops is not None:
        row |= _cpu(trace, ops)
    elif trace.has("kernels"):
        row |= _gpu(kernels, memops)
    return pl.DataFrame([row], schema=SCHEMA)


def _gpu(kernels: pl.DataFrame, memops: pl.DataFrame) -> dict[str, Any]:
    total = int(kernels["duration"].sum())
    attributed = _time(kernels, pl.col("reason").is_null())
    columns = ["device", "start", "end"]
    busy = 0
    both = pl.concat([kernels.select(columns), memops.select(columns)])
    for part in both.partition_by("device"):
        busy += union_length(part["start"].to_numpy(), part["end"].to_numpy())
    whole = total + int(memops["duration"].sum())
    launched = pl.col("launched")
    free = pl.Series(matching(kernels["op_type"], rf"\A({'|'.join(FREE)})\z"))
    known = pl.col("flops").is_not_null() | pl.lit(free)
    with_launch = _time(kernels, launched) + _time(memops, launched)
    with_flops = _time(kernels, launched & known) + _time(memops, launched)
    sized = pl.col("bytes").is_not_null() & launched
    with_bytes = _time(kernels, sized) + _time(memops, sized)
    tensor = _time(kernels, pl.col("tensor_core").fill_null(False))
    return {
        "device_busy": busy,
        "kernel_time": total,
        "attributed_time": attributed,
        "unattributed_time": total - attributed,
        "attributed_share": attributed / total if total else None,
        "launched_share": with_launch / whole if whole else None,
        "flops_share": with_flops / with_launch if with_launch else None,
        "bytes_share": with_bytes / with_launch if with_launch else None,
        "tensor_core_time": tensor if kernels["tensor_core"].is_not_null().any() else None,
    }


def _own(costs: pl.DataFrame) -> dict[str, Any]:
    if costs.is_empty():
        return {}
    one = costs.group_by("process").agg(pl.col("span", "steps_span", "steps_time").first()).sum()
    span, steps_span, steps_time = one.select("span", "steps_span", "steps_time").row(0)
    time = int(costs["time"].sum())
    return {
        "own_time": time,
        "own_share": time / span if span else None,
        "own_steps_share": steps_time / steps_span if steps_span else None,
    }


def _time(frame: pl.DataFrame, chosen: pl.Expr) -> int:
    return int(frame.select(pl.col("duration").filter(chosen).sum()).item())


def _cpu(trace: Trace, ops: pl.DataFrame) -> dict[str, Any]:
    """Op self time, and the time of the steps' own threads inside steps but outside any op.

    Threads without steps of their own (XLA's pool) work for those that have: while an op runs on
    one of them, a thread that waits is not outside any op.
    """
    if "device_time" in ops.columns:
        ops = ops.filter(pl.col("device_time").is_not_null())
    attributed = int(ops["self_time"].sum())
    outside = sum(int((last - first).sum()) for _, _, (first, last) in _outside(trace, ops))
    top = ops.filter(pl.col("parent_id").is_null())
    busy = sum(
        union_length(part["start"].to_numpy(), part["end"].to_numpy())
        for part in top.select("process", "start", "end").partition_by("process")
    )
    known = ops.filter(
        pl.col("flops").is_not_null()
        | pl.col("op_type").cast(pl.String).is_in(FREE).fill_null(False)
    )
    return {
        "device_busy": busy,
        "kernel_time": attributed + outside,
        "attributed_time": attributed,
        "unattributed_time": outside,
        "attributed_share": attributed / (attributed + outside) if attributed + outside else None,
        "flops_share": _time_of(known) / attributed if attributed else None,
        "bytes_share": _time_of(ops.filter(pl.col("bytes").is_not_null())) / attributed
        if attributed
        else None,
    }


def _time_of(ops: pl.DataFrame) -> int:
    return int(ops["self_time"].sum())


def _outside(trace: Trace, ops: pl.DataFrame) -> Iterator[tuple[int, int, tuple[Ints, Ints]]]:
    """(process, thread, intervals): time of the steps' own threads inside steps, outside any op."""
    steps = captured_steps(trace, ended_steps(trace["ranges"]))
    top = ops.filter(pl.col("parent_id").is_null())
    stepping = steps.select("process", "thread").unique()
    pool = top.join(stepping, on=["process", "thread"], how="anti", nulls_equal=True)
    for (process, thread), part in steps.group_by("process", "thread"):
        own = (pl.col("process") == process) & (pl.col("thread") == thread)
        on_thread = pl.concat([top.filter(own), pool.filter(pl.col("process") == process)])
        inside = merge(part["start"].to_numpy(), part["end"].to_numpy())
        in_ops = merge(on_thread["start"].to_numpy(), on_thread["end"].to_numpy())
        yield int(process), int(thread), subtract(inside, in_ops)


def ended_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    """The step ranges that something ended: the one that a last optimizer step began is none."""
    unclosed = pl.col("attrs").str.contains('"unclosed":true', literal=True).fill_null(False)
    return ranges.filter((pl.col("category") == "step") & ~unclosed)


def _wall_time(trace: Trace) -> int | None:
    """From the first event to the last, host and device."""
    low: list[int] = []
    high: list[int] = []
    for name in ("ranges", "calls", "kernels", "memops"):
        table = trace[name]
        if len(table):
            low.append(table["start"].min())  # type: ignore[arg-type]
            high.append(table["end"].max())  # type: ignore[arg-type]
    return max(high) - min(low) if low else None


def _distinct(trace: Trace, column: str) -> int:
    seen: set[int] = set()
    for name in ("ranges", "calls", "kernels", "memops"):
        seen.update(trace[name][column].drop_nulls().unique().to_list())
    return len(seen)


def _devices(kernels: pl.DataFrame, memops: pl.DataFrame) -> int:
    """Devices that did something."""
    return pl.concat([kernels["device"], memops["device"]]).drop_nulls().n_unique()


#: What the time inside steps, outside any op, is spent on, as far as ranges tell.
CPU_REASONS: Final = ("inside steps, compiling a program", "inside steps, outside any op")


def unattributed_on_cpu(
    trace: Trace, summary: pl.DataFrame, ops: Callable[[], pl.DataFrame]
) -> pl.DataFrame:
    """The columns of ``totals.unattributed`` for a CPU-only profile; ``ops`` gives its ops.

    Time in which a program was compiled has a reason of its own.
    """
    whole, rest = summary["kernel_time"].item(), summary["unattributed_time"].item()
    compiling = 0
    phases = trace["ranges"].filter(pl.col("category") == "phase")
    compiles = phases.filter(pl.Series(matching(phases["text"], rf"\A{COMPILE}( |\z)")))
    if len(compiles):
        for process, thread, outside in _outside(trace, ops()):
            here = (pl.col("process") == process) & (pl.col("thread") == thread)
            mine = compiles.filter(here)
            spans = merge(mine["start"].to_numpy(), mine["end"].to_numpy())
            first, last = intersect(spans, outside)
            compiling += int((last - first).sum())
    rows = zip(CPU_REASONS, (compiling, rest - compiling), strict=True)
    return (
        pl.DataFrame(rows, schema={"reason": pl.String, "time": pl.Int64}, orient="row")
        .filter(pl.col("time") > 0)
        .sort("time", descending=True)
        .select(
            "reason",
            pl.lit(None, pl.Int64).alias("kernels"),
            "time",
            (pl.col("time") / whole).alias("share"),
        )
    )
