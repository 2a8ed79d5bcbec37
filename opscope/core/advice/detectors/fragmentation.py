"""Memory that is reserved and cannot be used, and memory taken from the driver again and again."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice import allocator_calls
from opscope.core.advice.communicated import as_int
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import framework, ms, share
from opscope.core.analysis.memory.memory_blocks import ordered

#: The part of the memory reserved at the peak that is not in use, and its least number of bytes.
UNUSED: Final = 0.25
LEAST_BYTES: Final = 1 << 30
#: PyTorch keeps allocations below 1 MiB in small segments of their own.
_SMALL: Final = 1 << 20


def find(answers: Answers) -> Answer:
    """Return a finding for each device with much unused memory reserved, and one for repeated calls."""
    findings = []
    calls = allocator_calls.repeated(answers)
    if len(calls):
        findings.append(_repeat(answers, calls))
    memory = answers.memory().filter(pl.col("reserved").is_not_null())
    wasted = memory.filter(
        (pl.col("peak_unused") >= UNUSED * pl.col("peak_reserved"))
        & (pl.col("peak_unused") >= LEAST_BYTES)
    )
    grown = _grow(answers) if len(memory) else {}
    for row in memory.sort("process", "device").rows(named=True):
        key = (row["process"], row["device"])
        here = pl.col("process").eq_missing(key[0]) & pl.col("device").eq_missing(key[1])
        if key in grown or len(wasted.filter(here)):
            findings.append(_reserve(answers, row, grown.get(key)))
    if not findings and memory.is_empty():
        return CannotTell(
            "what the allocator reserved was not recorded: capture memory (opscope run --memory, or"
            " torch.profiler's profile_memory=True)"
        )
    return findings


def _grow(answers: Answers) -> dict[tuple[int | None, int | None], tuple[int, int]]:
    """Return, per device, how often the allocator reserved more memory for a block although as many bytes
    were reserved and not in use, and how many bytes it reserved in these cases."""
    key = ["process", "device"]
    reserved = pl.col("reserved")
    grew = answers.trace["allocations"].group_by(key).agg(reserved.max() > reserved.min())
    if not grew["reserved"].any():  # sorting a million events takes longer than this
        return {}
    events = ordered(answers.trace).filter(pl.col("reserved").is_not_null())
    before = (pl.col("reserved") - pl.col("total")).shift().over(key)
    gain = pl.col("reserved") - pl.col("reserved").shift().over(key)
    rows = events.with_columns(before.alias("unused"), gain.alias("gain")).filter(
        (pl.col("gain") > 0) & (pl.col("bytes") >= _SMALL) & (pl.col("unused") >= pl.col("bytes"))
    )
    each = rows.group_by(key).agg(pl.len(), pl.col("gain").sum())
    return {(process, device): (count, gained) for process, device, count, gained in each.rows()}


def _reserve(answers: Answers, row: dict[str, Any], grown: tuple[int, int] | None) -> Finding:
    peak, reserved, unused = row["peak_memory"], row["peak_reserved"], row["peak_unused"]
    proof = (
        f"{grown[0]:,} times it reserved more ({grown[1] / 1e9:.2f} GB in all) for a block although at least"
        " as many bytes were reserved and not in use: they were in pieces"
        if grown
        else "nothing in the trace shows that a block did not fit: the reserve may as well stem from an"
        " earlier peak"
    )
    return Finding(
        what=f"The allocator of device {row['device']} of process {row['process']} holds"
        f" {reserved / 1e9:.2f} GB at the peak of {peak / 1e9:.2f} GB in use: {unused / 1e9:.2f} GB"
        f" ({share(unused, reserved)}) are not in use",
        evidence=proof,
        recommendation=_recommendation(framework(answers)),
        time=0,
        saving_least=0,
        saving_most=0,
        reasoning="memory(): peak_memory, peak_reserved and peak_unused; allocations: reserved, total and"
        " bytes of each event. No saving in time is claimed: it leaves memory for a larger batch.",
        confidence="high" if grown else "low",
        rows=pl.DataFrame(
            {
                "process": [row["process"]],
                "device": [row["device"]],
                "count": [grown[0] if grown else 0],
                "detail": [f"{unused} bytes reserved and not in use at the peak"],
            },
            schema={
                "process": pl.Int32,
                "device": pl.Int32,
                "count": pl.Int64,
                "detail": pl.String,
            },
        ),
    )


def _repeat(answers: Answers, calls: pl.DataFrame) -> Finding:
    time = int(calls["duration"].sum())
    # ranks run at once, so the longest time of one counts
    most = as_int(calls.group_by("process").agg(pl.col("duration").sum())["duration"].max())
    rows = calls["row"].to_numpy()
    return Finding(
        what=f"Memory is taken from the driver or given back in later steps: {len(calls):,} calls that"
        f" take {ms(time)} in {calls['step'].n_unique():,} steps",
        evidence=allocator_calls.said(calls),
        recommendation=_recommendation(framework(answers)),
        time=most,
        saving_least=0,
        saving_most=most,
        reasoning="calls: duration of cudaMalloc, cudaFree, hipMalloc and hipFree that begin in steps() after"
        " the warm-up (where that is not known: after the first step). At most the host's time in them, of"
        " the process with most; at least nothing: the device may have had enough queued.",
        confidence="high",
        rows=calls.group_by("process", "step", "name")
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("duration").sum().alias("time"))
        .sort("time", "process", "step", descending=[True, False, False])
        .select("process", "step", "count", "time", pl.col("name").alias("detail"))
        .pipe(with_rest),
        edit=Edit(launches=(rows, np.zeros(len(rows)))),
    )


def _recommendation(used: str | None) -> str:
    if used == "torch":
        return (
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; no torch.cuda.empty_cache() in the step; pad"
            " inputs to a few sizes, so that blocks fit again."
        )
    if used in ("tensorflow", "keras"):
        return "TF_GPU_ALLOCATOR=cuda_malloc_async; pad inputs to a few sizes."
    if used == "jax":
        return (
            "Leave XLA_PYTHON_CLIENT_PREALLOCATE and XLA_PYTHON_CLIENT_ALLOCATOR at their defaults."
        )
    if used == "mindspore":
        return "mindspore.set_context(mempool_block_size='…GB'), so that the pool grows seldom."
    return "Allocate once and reuse; or a pool: cudaMallocAsync, hipMallocAsync, RAPIDS Memory Manager."


DETECTOR = Detector(
    name="fragmentation",
    question="Is much memory reserved and not in use at the peak, or allocated anew in each step?",
    find=find,
    fires="25 % and 1 GiB of what is reserved, or calls in two steps after the warm-up",
    looks_at="memory(): what was reserved and not in use at the peak (25 % and 1 GiB or more); allocations:"
    " growth of the reserve although enough bytes were free; calls: cudaMalloc and cudaFree in at least two"
    " steps after the warm-up.",
    abstains="When the allocator's reserve was not recorded and no repeated calls were seen.",
    known_as=(),
)
