"""Debugging modes that slow a run down: launches that wait, checks for NaN, allocation in each step."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.saying import evidence, ms, share
from opscope.core.advice.work import named
from opscope.core.tables.columns import matching

#: Launches are called blocking only if at least FEWEST are known, and at least this part of them waits.
FEWEST: Final = 20
_BLOCKING: Final = 0.95
#: The fewest checks for NaN in the backward pass of a step that prove anomaly mode, which checks each node's
#: results.
_CHECKS: Final = 5
#: The calls that allocate and free device memory; Nsight Systems adds a version to the names.
_ALLOCATES: Final = (
    r"\A(cuda|hip)(Malloc|Free)(Managed|Pitch)?(_v\d+|_ptsz)*\z|\AcuMem(Alloc|Free)(_v\d+)*\z"
)
#: The first steps of a process, in which a caching allocator still grows.
WARM: Final = 2
#: The least allocations in a step for a finding, and their least part of the steps' time.
_PER_STEP: Final = 2
_LEAST: Final = 0.005


def find(answers: Answers) -> Answer:
    """Return a finding for each mode that the profile proves."""
    findings: list[Finding] = []
    judged = []
    blocking = _blocking(answers)
    if blocking is not None:
        judged.append("launches")
        findings += blocking
    anomaly = _anomaly(answers)
    if anomaly is not None:
        judged.append("backward passes")
        findings += anomaly
    allocation = _allocation(answers)
    if allocation is not None:
        judged.append("allocations")
        findings += allocation
    if not findings and allocation is None:
        calls = answers.trace["calls"]
        count = int(matching(calls["name"], _ALLOCATES).sum())
        if count >= FEWEST:
            return CannotTell(
                f"device memory was allocated or freed {count:,} times, and too few steps were recorded to"
                " tell whether this stops after the first"
            )
    if not judged:
        return CannotTell(
            "none of launch calls with kernels, backward ops, or CUDA calls in more than"
            f" {WARM} steps was recorded; environment variables are never in a profile"
        )
    return findings


def _blocking(answers: Answers) -> list[Finding] | None:
    """Launch calls that last until their kernel's end; None if too few launches were recorded."""
    kernels = answers.kernels(categories=True).with_row_index("row")
    has_launch = pl.col("call_start").is_not_null() & pl.col("graph_node").is_null()
    # where the clocks differ, kernels begin before their launch, which proves nothing
    waited = (pl.col("call_end") >= pl.col("end")) & (pl.col("start") >= pl.col("call_start"))
    flags = kernels.select(has_launch.alias("launched"), (has_launch & waited).alias("waited"))
    launched, many = int(flags["launched"].sum()), int(flags["waited"].sum())
    if launched < FEWEST:
        return None
    if many < _BLOCKING * launched:
        return []
    waits = kernels.filter(flags["waited"])
    # between the kernel's end and the next launch the device has nothing to do
    time = int((waits["call_end"] - waits["call_start"]).sum())
    keys = ["process", "correlation"]
    calls = answers.trace["calls"].select(keys).with_row_index("call")
    alone = (pl.col("call_end") - pl.col("call_start") - pl.col("duration")).clip(lower_bound=0)
    lasted = pl.max_horizontal(pl.col("call_end") - pl.col("call_start"), 1)
    scaled = waits.group_by(keys).agg((alone / lasted).min().alias("factor"))
    rows = calls.join(scaled, on=keys, how="inner")
    edit = Edit(launches=(rows["call"].to_numpy().astype(np.int64), rows["factor"].to_numpy()))
    return [
        Finding(
            what=f"{many:,} of {launched:,} launch calls last until their kernel has ended:"
            " every launch"
            f" waits, {ms(time)} in all, as with CUDA_LAUNCH_BLOCKING=1",
            evidence="call_end is not before end in "
            f"{share(many, launched)} of the kernels with a launch",
            recommendation="Unset CUDA_LAUNCH_BLOCKING (on AMD: AMD_SERIALIZE_KERNEL,"
            " HIP_LAUNCH_BLOCKING), which is for"
            " finding errors only.",
            time=time,
            saving_least=0,
            saving_most=time,
            reasoning="At most all time of these calls (call_start to call_end of kernels()), as a launch"
            " that does not"
            " wait takes some µs; at least nothing, where one stream's kernels set the pace.",
            confidence="high",
            rows=evidence(waits),
            edit=edit,
        )
    ]


def _anomaly(answers: Answers) -> list[Finding] | None:
    """PyTorch's anomaly mode, which looks for NaN in each backward node's results; None without backward
    ops."""
    if not named(answers, r"\Aaten::", "backward"):
        return None
    if not named(answers, r"\Aaten::isnan\b", "backward"):
        return []
    ops = answers.ops(categories=True)
    backward = ops.filter(pl.col("direction").cast(pl.String) == "backward")
    aten = backward.filter(pl.Series(matching(backward["op"], r"\Aaten::")))
    if aten.is_empty():
        return None
    checks = aten.filter(
        pl.Series(
            matching(
                aten["op"], r"\Aaten::(isnan|_is_any_true|_local_scalar_dense|item|is_nonzero)\b"
            )
        )
    )
    tests = checks.filter(pl.Series(matching(checks["op"], r"\Aaten::_is_any_true\b")))
    isnan = checks.filter(pl.Series(matching(checks["op"], r"\Aaten::isnan\b")))
    steps = max(1, aten["step"].n_unique())
    if min(len(tests), len(isnan)) < _CHECKS * steps:
        return []
    time = int(checks["self_time"].sum())
    process = checks.select("process", "thread", "start", "end")
    return [
        Finding(
            what=f"the backward pass looks for NaN {len(tests):,} times ({steps:,} steps): PyTorch's"
            " anomaly mode is on;"
            f" the checks take {ms(time)} on the host",
            evidence=f"aten::isnan: {len(isnan):,}, aten::_is_any_true: {len(tests):,} in the backward pass",
            recommendation="Remove torch.autograd.set_detect_anomaly(True) and `with"
            " torch.autograd.detect_anomaly():`; in Lightning: Trainer(detect_anomaly=False).",
            time=time,
            saving_least=0,
            saving_most=None,
            reasoning="The host's time in the checks: self_time of ops() named aten::isnan, _is_any_true,"
            " item,"
            " _local_scalar_dense in the backward pass. Nothing bounds the saving: anomaly mode also"
            " keeps a stack"
            " trace of every forward op, which is not recorded.",
            confidence="high",
            rows=evidence(checks, time="self_time"),
            edit=Edit(host=process.with_columns(pl.lit(0.0).alias("factor"))),
        )
    ]


def _allocation(answers: Answers) -> list[Finding] | None:
    """Device memory that is allocated and freed in steps after the first; None if that is not known."""
    calls, steps = answers.trace["calls"].with_row_index("call"), marked_steps(answers)
    if calls.is_empty() or steps.is_empty():
        return None
    numbered = steps.sort("process", "start").with_columns(
        pl.int_range(pl.len()).over("process").alias("place")
    )
    late = numbered.filter(pl.col("place") >= WARM)
    if late.is_empty():
        return None
    mine = calls.filter(pl.Series(matching(calls["name"], _ALLOCATES)))
    inside = (
        mine.sort("start")
        .join_asof(
            late.select("process", "place", "step", "start", pl.col("end").alias("step_end")).sort(
                "start"
            ),
            on="start",
            by="process",
            check_sortedness=False,
        )
        .filter(pl.col("start") < pl.col("step_end"))
    )
    time = int((inside["end"] - inside["start"]).sum())
    total = int((late["end"] - late["start"]).sum())
    if len(inside) < _PER_STEP * len(late) or time < _LEAST * total:
        return []
    by = inside.group_by("name").agg(
        pl.len().alias("count"), (pl.col("end") - pl.col("start")).sum().alias("time")
    )
    by = by.with_columns(pl.col("name").cast(pl.String)).sort("time", descending=True)
    rows = inside["call"].to_numpy().astype(np.int64)
    return [
        Finding(
            what=f"device memory is allocated or freed {len(inside):,} times in {len(late):,} steps after"
            " the first"
            f" {WARM}: {ms(time)}, {share(time, total)} of these steps",
            evidence="; ".join(
                f"{name}: {count:,} calls, {ms(took)}" for name, count, took in by.rows()
            ),
            recommendation="Keep the framework's caching allocator on: unset"
            " PYTORCH_NO_CUDA_MEMORY_CACHING, remove"
            " torch.cuda.empty_cache() from the loop; with varying sizes"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. In C++: cudaMallocAsync, or buffers made"
            " once.",
            time=time,
            saving_least=0,
            saving_most=None,
            reasoning="The time of the calls in steps after the first two (table calls; steps()). Nothing"
            " bounds the"
            " saving: cudaFree and some cudaMalloc wait for the whole device, so that work after them"
            " starts late.",
            confidence="high",
            rows=by.select(
                pl.col("count").cast(pl.Int64),
                pl.col("time").cast(pl.Int64),
                pl.col("name").alias("detail"),
            ),
            edit=Edit(launches=(rows, np.zeros(len(rows)))),
        )
    ]


DETECTOR = Detector(
    name="slow_api_flags",
    question="Is a debugging mode on, or memory allocated in each step, that the profile proves?",
    find=find,
    fires="95 % of at least 20 launches; 5 checks for NaN a step; or 2 allocations a step after the first"
    " 2, in 0.5 % of the time",
    looks_at="call_end and end of kernels(): whether every launch lasts until its kernel's end"
    " (CUDA_LAUNCH_BLOCKING=1); ops() of the backward pass: whether results are checked for NaN (anomaly"
    " mode); calls"
    " and steps(): cudaMalloc and cudaFree in steps after the first two.",
    abstains="Where neither launches, nor backward ops, nor CUDA calls in steps were recorded."
    " Environment variables"
    " are never in a profile: what leaves no trace of its own, such as deterministic algorithms or"
    " NCCL_DEBUG, is"
    " not judged.",
    known_as=("DLProf: slow API flags",),
)
