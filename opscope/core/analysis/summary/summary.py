"""The summary: wall time, busy time, time with and without an op, and the shares with known costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import ALL_FLOPS, copy_executions, kernel_executions
from opscope.core.analysis.ops.op_frame import KNOWN, rows_with_known_costs
from opscope.core.analysis.ops.spans import selected_part
from opscope.core.analysis.ops.windows import between, bounds, captured_steps, captured_time
from opscope.core.analysis.summary.summary_table import COMPILING, summary_table
from opscope.core.attribution.capture_traces import only_captured
from opscope.core.job.clocks import gpu_key
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import COMPILE
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import grouped, matching, pairs, pieces
from opscope.core.tables.intervals import NONE, Ints, intersect, merge, subtract, union_length
from opscope.core.tables.trace import SELECTED, Trace

SCHEMA: Final = {
    "wall_time": pl.Int64,
    "device_time": pl.Int64,
    "device_attributed_time": pl.Int64,
    "device_unattributed_time": pl.Int64,
    "window_time": pl.Int64,
    "window_steps": pl.Int64,
    "device_busy": pl.Int64,
    "kernel_time": pl.Int64,
    "attributed_time": pl.Int64,
    "unattributed_time": pl.Int64,
    "attributed_share": pl.Float64,
    "launched_share": pl.Float64,
    "flops_share": pl.Float64,
    "kernel_flops_share": pl.Float64,
    "bytes_share": pl.Float64,
    "tensor_core_time": pl.Int64,
    "tensor_core_undetermined_time": pl.Int64,
    "steps": pl.Int64,
    "processes": pl.Int64,
    "devices": pl.Int64,
    "kernels": pl.Int64,
    "copies": pl.Int64,
    "waits": pl.Int64,
    "queues_waited": pl.Int64,
    "files": pl.Int64,
    "files_read": pl.Int64,
    "processor_time": pl.Int64,
    "own_time": pl.Int64,
    "own_share": pl.Float64,
    "own_steps_share": pl.Float64,
}
_SPAN: Final = ("start", "end")
#: Columns that are sums over the parts of a job, except the number of steps, which every rank makes.
OF_RANK: Final = ("steps_of_rank", "captured_steps_of_rank")
_COUNTED: Final = ("processes", "kernels", "copies", "waits", "queues_waited")
#: Op types whose FLOPs are known to be 0, so that they never count as unknown.
FREE: Final = ("communication", "copy", "view")


def summary(
    trace: Trace, kernels: pl.DataFrame, memops: pl.DataFrame, ops: pl.DataFrame | None
) -> pl.DataFrame:
    """Return one row: times in ns, shares in 0 … 1; null if the trace does not show it.

    ``device_time`` = ``device_attributed_time`` + ``device_unattributed_time``, exactly: on a GPU the
    summed duration of the kernels, copies and sets. ``kernel_time`` = ``attributed_time`` +
    ``unattributed_time`` likewise, of the kernels alone. ``ops`` is given for a CPU-only profile
    (``rows_with_known_costs``), where both are the self time of the ops plus, unattributed, thread time
    inside steps outside any op.
    ``window_time`` is how long kernels were captured, ``window_steps`` the number of steps in that window;
    null if the whole run was captured. With a window all times of kernels, and on a CPU all times of ops,
    are those of the window.

    ``launched_share``: device time (kernels, copies, sets) with a launch record over all device time.
    ``flops_share``: device time with known FLOPs over device time with a launch record, or over all device
    time if the source records no launches; copies count in both, since their FLOPs are known to be 0.
    ``kernel_flops_share``: the same among kernels alone. ``bytes_share``: like ``flops_share``, for known
    bytes. ``tensor_core_undetermined_time``: time of kernels for which neither name nor op shows whether
    they use Tensor Cores.
    ``coverage.missing_costs`` lists what the shares leave out.

    ``own_time`` is opscope's own time, of all parts and processes; ``own_share`` is that time over the
    time that the processes recorded, ``own_steps_share`` its part inside steps over the steps' time.
    """
    ran = on_devices(trace, kernels, memops)
    busy = [union_length(*(_join(parts, name) for name in _SPAN)) for parts in ran.values()]
    devices = sum(key[-1] is not None for key in ran)
    sums = summary_sums(trace, kernels, memops, ops)
    return summary_of(trace, sums, _wall_time(trace, only_captured(trace)), devices, sum(busy))


def summary_sums(
    trace: Trace, kernels: pl.DataFrame, memops: pl.DataFrame, ops: pl.DataFrame | None
) -> dict[str, int | None]:
    """Return the integers from which ``summary`` is made; those of the parts of a job add up (``added``).

    None: unknown, or not applicable to this kind of trace. The arguments are those of ``summary``.
    """
    counted = ~pl.col("process").is_in(only_captured(trace)).fill_null(False)
    steps = ended_steps(trace["ranges"]).filter(counted)
    waits = trace.queue_waits()
    captured = captured_steps(trace, steps)
    return {
        "steps": len(steps),
        "captured_steps": len(captured),
        "steps_of_rank": _most_of_a_rank(trace, steps),
        "captured_steps_of_rank": _most_of_a_rank(trace, captured),
        "processes": len(trace["processes"].filter(counted)) or _distinct(trace, "process"),
        "kernels": len(kernels) if trace.has("kernels") else None,
        "copies": len(memops) if trace.has("memops") else None,
        "waits": len(waits) if trace.has("syncs") else None,
        "queues_waited": int((waits["end"] - waits["start"]).sum()) if trace.has("syncs") else None,
        **(_of_gpu(kernels, memops) if ops is None and trace.has("kernels") else {}),
        **(_of_cpu(trace, ops) if ops is not None else {}),
    }


def _most_of_a_rank(trace: Trace, steps: pl.DataFrame) -> int | None:
    """Return the largest number of steps of any rank; None if no rank has steps."""
    ranks = trace["processes"].select("process", "rank").drop_nulls().unique("process")
    counts = steps.join(ranks, on="process").group_by("process").len()["len"]
    return None if counts.is_empty() else int(counts.max())  # type: ignore[arg-type]


def added(parts: Iterable[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Return the ``summary_sums`` of all parts added up; None if no part knows a number. All ranks make the
    same steps, so of the numbers of steps the largest counts."""
    sums: dict[str, int | None] = {}
    for part in parts:
        for name, value in part.items():
            before = sums.get(name)
            if value is None or before is None:
                sums[name] = before if value is None else value
            else:
                sums[name] = max(value, before) if name in OF_RANK else value + before
    return sums


def summary_of(
    trace: Trace, sums: Mapping[str, int | None], wall: int | None, devices: int, busy: int | None
) -> pl.DataFrame:
    """Return ``summary`` from its sums, the time from the first event to the last, and the devices.

    ``busy`` (ns): how long any of the devices' work ran; None: not known. Of ``trace`` it needs only which
    kinds of data were recorded, ``windows`` and ``own_costs``.
    """
    row: dict[str, Any] = dict.fromkeys(SCHEMA)
    window = captured_time(trace)
    unnamed = sums.get("kernels") or sums.get("copies") or not trace.has("kernels")
    row |= {
        "wall_time": wall,
        "window_time": window,
        "devices": devices or (None if trace.used_gpu and unnamed else 0),
        **{name: sums.get(name) for name in _COUNTED},
    }
    steps, captured = (
        sums[of_all] if sums.get(name) is None else sums[name]
        for name, of_all in zip(OF_RANK, ("steps", "captured_steps"), strict=True)
    )
    row |= {"steps": steps, "window_steps": None if window is None else captured}
    files = trace.origin.get("files", 1)
    row |= {"files": files, "files_read": files - len(trace.origin.get("failed", ()))}
    row |= _own(trace["own_costs"])
    row["processor_time"] = _processor_time(trace["processes"])
    if sums.get("whole") is not None:
        row |= _gpu(sums, trace.has("calls"), busy)
    elif sums.get("self_time") is not None:
        row |= _cpu(sums)
    return pl.DataFrame([row], schema=SCHEMA)


def _of_gpu(kernels: pl.DataFrame, memops: pl.DataFrame) -> dict[str, int | None]:
    """The sums (ns) of a trace with kernels; sums ``launched_…`` are of the work that has a launch record."""
    has_op, launched = pl.col("reason").is_null(), pl.col("launched")
    free = pl.Series("free", matching(kernels["op_type"], rf"\A({'|'.join(FREE)})\z"))
    kernels = kernels.with_columns(free)
    has_flops = ALL_FLOPS.is_not_null() | pl.col("free")
    sized, all_ = pl.col("bytes").is_not_null(), pl.lit(True)
    sums: dict[str, int | None] = {
        "total": int(kernels["duration"].sum()),
        "whole": int(kernels["duration"].sum()) + int(memops["duration"].sum()),
        "attributed": _time(kernels, has_op),
        "copied": _time(memops, has_op),
        "tensor": _time(kernels, pl.col("tensor_core").fill_null(False)),
        "tensor_told": int(kernels["tensor_core"].is_not_null().any()),
        "tensor_unknown": _time(kernels, pl.col("tensor_core").is_null()),
    }
    for prefix, which in (("launched_", launched), ("all_", all_)):
        sums |= {
            f"{prefix}kernels": _time(kernels, which),
            f"{prefix}memops": _time(memops, which),
            f"{prefix}known": _time(kernels, which & has_flops),
            f"{prefix}sized": _time(kernels, sized & which) + _time(memops, sized & which),
        }
    return sums


def _gpu(sums: Mapping[str, int | None], with_calls: bool, busy: int | None) -> dict[str, Any]:
    """``with_calls``: whether the source records launches. If not, shares refer to all device time."""
    have: dict[str, int] = {name: value or 0 for name, value in sums.items()}
    device_time, total, attributed = have["whole"], have["total"], have["attributed"]
    launched = have["launched_kernels"] + have["launched_memops"]
    prefix = "launched_" if with_calls else "all_"
    with_launch = have[f"{prefix}kernels"] + have[f"{prefix}memops"]
    of_kernels, known_time = have[f"{prefix}kernels"], have[f"{prefix}known"]
    with_flops = known_time + have[f"{prefix}memops"]
    return {
        "device_time": device_time,
        "device_attributed_time": attributed + have["copied"],
        "device_unattributed_time": device_time - attributed - have["copied"],
        "device_busy": busy,
        "kernel_time": total,
        "attributed_time": attributed,
        "unattributed_time": total - attributed,
        "attributed_share": attributed / total if total else None,
        "launched_share": launched / device_time if device_time else None,
        "flops_share": with_flops / with_launch if with_launch else None,
        "kernel_flops_share": known_time / of_kernels if of_kernels else None,
        "bytes_share": have[f"{prefix}sized"] / with_launch if with_launch else None,
        "tensor_core_time": have["tensor"] if have["tensor_told"] else None,
        "tensor_core_undetermined_time": have["tensor_unknown"],
    }


def _join(parts: list[pl.DataFrame], name: str) -> Ints:
    """Return a column of all parts joined; of a single part without a copy."""
    columns = [part[name].to_numpy() for part in parts]
    joined: Ints = columns[0] if len(columns) == 1 else np.concatenate(columns)
    return joined


def _own(costs: pl.DataFrame) -> dict[str, Any]:
    if costs.is_empty():
        return {}
    each = costs.group_by("process").agg(pl.col("span", "steps_span", "steps_time").first())
    stepped = each.filter(pl.col("steps_span").is_not_null())
    unknown = bool(stepped["steps_time"].has_nulls())
    span, steps_span, steps_time = each.sum().select("span", "steps_span", "steps_time").row(0)
    time = int(costs["time"].sum())
    return {
        "own_time": time,
        "own_share": time / span if span else None,
        "own_steps_share": steps_time / steps_span if steps_span and not unknown else None,
    }


def _processor_time(processes: pl.DataFrame) -> int | None:
    """Return the processor time (ns) of all processes; None if it is unknown for any."""
    times = processes["processor_time"]
    return None if times.is_empty() or times.has_nulls() else int(times.sum())


def _time(frame: pl.DataFrame, chosen: pl.Expr) -> int:
    sums = pl.col("duration").filter(chosen).sum()  # a piece at a time, because the filter copies
    return sum(int(frame[part].select(sums).item()) for part in pieces(len(frame)))


def _of_cpu(trace: Trace, ops: pl.DataFrame) -> dict[str, int | None]:
    """Return the sums (ns) of a CPU-only profile: op self time, and the time of the steps' own threads
    inside steps but outside any op.

    Threads without steps of their own (XLA's pool) work for the threads with steps: while an op runs on
    such a thread, a thread that waits does not count as outside any op.
    """
    if "device_time" in ops.columns:
        ops = ops.filter(pl.col("device_time").is_not_null())
    if ops.is_empty() and ended_steps(trace["ranges"]).is_empty():
        return {}  # the CPU's work was not recorded: it is unknown, not 0
    top = ops.filter(pl.col("parent_id").is_null())
    free = pl.col("op_type").cast(pl.String).is_in(FREE).fill_null(False)
    flops, sizes = (pl.col(name) for name in KNOWN)
    return {
        "self_time": _time_of(ops),
        "outside": sum(
            int((last - first).sum()) for _, _, (first, last) in outside_ops(trace, ops)
        ),
        "cpu_busy": sum(
            union_length(part["start"].to_numpy(), part["end"].to_numpy())
            for part in top.select("process", "start", "end").partition_by("process")
        ),
        "known": _time_of(ops.filter(flops | free)),
        "sized": _time_of(ops.filter(sizes)),
    }


def _cpu(sums: Mapping[str, int | None]) -> dict[str, Any]:
    have: dict[str, int] = {name: value or 0 for name, value in sums.items()}
    attributed, outside = have["self_time"], have["outside"]
    return {
        "device_time": attributed + outside,
        "device_attributed_time": attributed,
        "device_unattributed_time": outside,
        "device_busy": have["cpu_busy"],
        "kernel_time": attributed + outside,
        "attributed_time": attributed,
        "unattributed_time": outside,
        "attributed_share": attributed / (attributed + outside) if attributed + outside else None,
        "flops_share": have["known"] / attributed if attributed else None,
        "bytes_share": have["sized"] / attributed if attributed else None,
    }


def _time_of(ops: pl.DataFrame) -> int:
    return int(ops["self_time"].sum())


def outside_ops(trace: Trace, ops: pl.DataFrame) -> Iterator[tuple[int, int, tuple[Ints, Ints]]]:
    """Yield (process, thread, intervals): time of the steps' own threads inside steps, outside any op."""
    numbered = pl.col("process", "thread").fill_null(NONE)
    steps = captured_steps(trace, ended_steps(trace["ranges"])).with_columns(numbered)
    top = ops.filter(pl.col("parent_id").is_null()).with_columns(numbered)
    stepping = steps.select("process", "thread").unique()
    pool = top.join(stepping, on=["process", "thread"], how="anti", nulls_equal=True)
    for (process, thread), part in steps.group_by("process", "thread"):
        own = (pl.col("process") == process) & (pl.col("thread") == thread)
        on_thread = pl.concat([top.filter(own), pool.filter(pl.col("process") == process)])
        inside = merge(part["start"].to_numpy(), part["end"].to_numpy())
        inside = selected_part(trace, int(process), int(thread), inside)
        in_ops = merge(on_thread["start"].to_numpy(), on_thread["end"].to_numpy())
        yield int(process), int(thread), subtract(inside, in_ops)


def ended_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the step ranges that have ended; the last optimizer step begins a range that does not end."""
    # filter for steps first: searching all attributes of a million kernels' ranges took 0.1 GB and 0.1 s each
    # time
    steps = pl.concat(
        ranges[part].filter(pl.col("category") == "step") for part in pieces(len(ranges))
    )
    return steps.filter(~pl.col("attrs").str.contains(UNCLOSED_MARK, literal=True).fill_null(False))


def compiles(trace: Trace) -> pl.DataFrame:
    """Return the ranges in which a program was compiled."""
    phases = trace["ranges"].filter(pl.col("category") == "phase")
    return phases.filter(pl.Series(matching(phases["text"], rf"\A{COMPILE}( |\z)")))


def _wall_time(trace: Trace, apart: list[int]) -> int | None:
    """Return the time from the first event to the last, on host and device, but of processes ``apart``."""
    if SELECTED in trace.origin:
        span = trace.origin[SELECTED]["span"]
        return None if span is None else span[1] - span[0]
    each = bounds(trace)
    if apart:
        each = each.filter(~pl.col("process").is_in(apart).fill_null(False))
    return between(each)


def _distinct(trace: Trace, column: str) -> int:
    seen: set[int] = set()
    for name in ("ranges", "calls", "kernels", "memops"):
        seen.update(trace[name][column].drop_nulls().unique().to_list())
    return len(seen)


def on_devices(
    trace: Trace, kernels: pl.DataFrame, memops: pl.DataFrame
) -> dict[tuple[object, ...], list[pl.DataFrame]]:
    """Return the start and end of the kernels, copies and sets of each device, by a unique key per device.

    The key is ``gpu_key``'s.
    """
    key = gpu_key(trace)
    rows_of_devices: dict[tuple[object, ...], list[pl.DataFrame]] = {}
    for table in (kernels, memops):
        for process, device, rows in _by_device(table):
            rows_of_devices.setdefault(key(process, device), []).append(rows)
    return rows_of_devices


def device_spans(
    kernels: pl.DataFrame, memops: pl.DataFrame
) -> dict[tuple[int | None, int | None], tuple[Ints, Ints]]:
    """Return when any work ran on each process and device: starts and ends of disjoint stretches."""
    spans_of_devices: dict[tuple[int | None, int | None], list[pl.DataFrame]] = {}
    for table in (kernels, memops):
        for process, device, rows in _by_device(table):
            spans_of_devices.setdefault((process, device), []).append(rows)
    return {
        key: merge(*(_join(parts, name) for name in _SPAN))
        for key, parts in spans_of_devices.items()
    }


#: A number that no process or device has: their numbers have 32 bits.
_NOBODY: Final = -(1 << 40)


def _by_device(table: pl.DataFrame) -> Iterator[tuple[int | None, int | None, pl.DataFrame]]:
    """Yield the times of each process and device.

    For ten million rows ``partition_by`` takes three times as long.
    """
    owner = [table[name] for name in ("process", "device")]
    if len(table) and all(
        column.min() == column.max() and not column.null_count() for column in owner
    ):
        yield owner[0][0], owner[1][0], table.select(_SPAN)
        return
    process, device, number = pairs(
        *(
            (column.cast(pl.Int64).fill_null(_NOBODY) if column.null_count() else column).to_numpy()
            for column in owner
        )
    )
    times = table.select(_SPAN)
    for index, rows in grouped(number.astype(np.int64)):
        key = (
            None if value == _NOBODY else int(value) for value in (process[index], device[index])
        )
        mine = times if len(process) == 1 else times[pl.Series(rows.astype(np.uint32))]
        yield *key, mine  # type: ignore[misc]


#: The reasons for time inside steps, outside any op: compiling, if a range shows it, else unknown.
CPU_REASONS: Final = (COMPILING, "inside steps, outside any op")


def compiling_time(trace: Trace, ops: Callable[[], pl.DataFrame]) -> int:
    """Return the time (ns) of a CPU-only profile inside steps, outside any op, in which a program was
    compiled. ``ops`` returns its ops."""
    compiled = compiles(trace)
    compiling = 0
    if len(compiled):
        for process, thread, outside in outside_ops(trace, ops()):
            here = (pl.col("process") == process) & (pl.col("thread") == thread)
            mine = compiled.filter(here)
            spans = merge(mine["start"].to_numpy(), mine["end"].to_numpy())
            first, last = intersect(spans, outside)
            compiling += int((last - first).sum())
    return compiling


def unattributed_on_cpu(summary: pl.DataFrame, compiling: int) -> pl.DataFrame:
    """Return the columns of ``totals.unattributed`` for a CPU-only profile.

    kernels and copies are null. ``compiling`` is ``compiling_time``.
    """
    total, unattributed_time = summary["kernel_time"].item(), summary["unattributed_time"].item()
    rest = unattributed_time or 0  # if it is not known there is no row
    rows = zip(CPU_REASONS, (compiling, rest - compiling), strict=True)
    return (
        pl.DataFrame(rows, schema={"reason": pl.String, "time": pl.Int64}, orient="row")
        .filter(pl.col("time") > 0)
        .sort("time", descending=True)
        .select(
            "reason",
            pl.lit(None, pl.Int64).alias("kernels"),
            pl.lit(None, pl.Int64).alias("copies"),
            pl.col("time").alias("kernel_time"),
            "time",
            (pl.col("time") / total).alias("share"),
        )
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The whole profile in one row.

    The columns ``device_attributed_time`` and ``device_unattributed_time`` add up to ``device_time``
    exactly; likewise ``attributed_time`` and ``unattributed_time`` to ``kernel_time``. Without a GPU the
    device is the CPU: its time is the ops' self time plus the threads' time inside steps but outside any
    op. If only a window of the run was captured, kernel times are those of the window.
    """
    ops = profile.of(rows_with_known_costs) if profile.cpu_only else None
    return summary(
        profile.attribution.trace, profile.of(kernel_executions), profile.of(copy_executions), ops
    )


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "summary()",
            "one row: the whole profile",
            columns(
                "wall_time device_time device_attributed_time device_unattributed_time "
                "window_time window_steps device_busy kernel_time attributed_time "
                "unattributed_time attributed_share launched_share flops_share "
                "kernel_flops_share bytes_share tensor_core_time "
                "tensor_core_undetermined_time steps processes devices kernels copies "
                "waits queues_waited files files_read processor_time own_time own_share own_steps_share",
                """
                device_time: ns: durations of all kernels, copies and sets added up; without a GPU, the
                    ops' self time plus the threads' time inside steps but outside any op
                device_attributed_time: ns: part of device_time whose op is known
                device_unattributed_time: ns: the rest of device_time: its op is not known
                window_time: ns: length of the window in which kernels were captured; null if the run was
                    not limited to a window
                window_steps: count: steps inside the captured window
                steps: count: training steps seen; of ranks, those of the rank with most: each makes
                    every step of the job
                device_busy: ns: time during which at least one kernel, copy or set ran, summed over
                    devices; without a GPU, time during which at least one op ran, summed over processes
                attributed_time: ns: part of kernel_time whose op is known
                unattributed_time: ns: the rest of kernel_time: its op is not known
                attributed_share: fraction: attributed_time / kernel_time
                launched_share: fraction: device time that has a launch record / all device time
                flops_share: fraction: launched device time whose FLOPs are known / launched device time;
                    of all device time if the source records no launches
                kernel_flops_share: fraction: flops_share of kernels alone, without copies and sets, which
                    compute nothing
                bytes_share: fraction: launched device time whose bytes are known / launched device time
                devices: count: devices used
                waits: count: times in which a queue of a device waited for an event, another queue or
                    another rank; null if the source records none
                queues_waited: ns: their durations added up, which are in no other time: waiting is no work
                files: count: files given
                files_read: count: files that could be read
                processor_time: ns: time that the threads of the processes ran on processors while they were
                    recorded; null if the recording does not tell
                own_time: ns: time that opscope itself took while it recorded: all parts, threads and
                    processes
                own_share: fraction: own_time / the time recorded
                own_steps_share: fraction: part of own_time inside steps / the steps' time
                """,
            ),
        ),
    ),
    as_text=False,
    reports=(
        Report(
            name="summary",
            title="Summary",
            empty="the profile is empty",
            table=lambda report, profile, view: summary_table(profile, view.first),
            sums="",
            single=True,
            lean=True,
        ),
    ),
)
