"""Memory near the device's limit: what was in use at the peak, and changes that would lower it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice import allocator_calls
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import framework, ms, share
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.tables.columns import any_matches

#: The part of the device's memory from which it is near the limit, as in the PyTorch profiler's plug-in.
LEAST: Final = 0.9
_KINDS: Final = 4
_TORCH: Final = {
    "activation": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) around the largest"
    " layers, or a smaller batch",
    "optimizer state": "torch.distributed.optim.ZeroRedundancyOptimizer or fully_shard(model), which divide"
    " the optimizer's state by the ranks",
    "parameter": "fully_shard(model), or parameters in bfloat16",
    "gradient": "optimizer.zero_grad(set_to_none=True) before the forward pass, and gradients sharded by"
    " fully_shard(model)",
}


def find(answers: Answers) -> Answer:
    """Return a finding for each device with more than 90 % of its memory in use or reserved."""
    memory = answers.memory().filter((pl.col("device") >= 0) | pl.col("device").is_null())
    if memory.is_empty():
        return CannotTell(
            "the memory of no device was recorded: capture with opscope run --memory, or with"
            " torch.profiler's profile_memory=True"
            if not answers.cpu_only
            else "the profile has no device whose memory has a limit: its ops ran on the CPU"
        )
    sizes = _sizes(answers, memory)
    limited = memory.with_columns(sizes).filter(pl.col("limit") > 0)
    if limited.is_empty():
        return CannotTell("the size of the device's memory is not known: name the device (--gpu)")
    top = pl.max_horizontal("peak_memory", "reserved")
    near = limited.filter(top > LEAST * pl.col("limit")).sort("process", "device")
    if near.is_empty():
        return []
    calls = allocator_calls.repeated(answers)
    return [_finding(answers, row, calls) for row in near.rows(named=True)]


def _sizes(answers: Answers, memory: pl.DataFrame) -> pl.Series:
    """Return the size (bytes) of the memory of each row's device: as recorded, else that of the device's
    model."""
    recorded = answers.trace["devices"].select("process", "device", pl.col("memory").alias("limit"))
    devices = memory.join(
        recorded.unique(["process", "device"], keep="first"),
        on=["process", "device"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["limit"]
    device, _ = answers.device
    model = device.memory if device is not None else None
    return devices.fill_null(model) if model is not None else devices


def _finding(answers: Answers, row: dict[str, Any], calls: pl.DataFrame) -> Finding:
    peak, limit, reserved = row["peak_memory"], row["limit"], row["reserved"]
    here = pl.col("process").eq_missing(pl.lit(row["process"])) & pl.col("device").eq_missing(
        pl.lit(row["device"])
    )
    kinds = (
        answers.memory_kinds()
        .filter(here)
        .group_by("kind")
        .agg(pl.col("at_peak").sum())
        .filter(pl.col("at_peak") >= 0.01 * peak)
        .sort("at_peak", "kind", descending=[True, False])
    )
    lived = "; ".join(
        f"{kind}: {size / 1e9:.2f} GB ({share(size, peak)})"
        for kind, size in kinds.head(_KINDS).rows()
    )
    mine = calls.filter(pl.col("process") == row["process"])
    flushed = len(mine) > 0 and mine["name"].str.contains("Free").any()
    time = int(mine["duration"].sum()) if flushed else 0
    reserved_text = (
        f", {reserved / 1e9:.2f} GB reserved by its allocator" if reserved is not None else ""
    )
    retries = (
        f"; the allocator gave memory back and took it again in the steps ({allocator_calls.said(mine)},"
        f" {ms(time)})"
        if flushed
        else ""
    )
    in_use = peak > LEAST * limit
    return Finding(
        what=f"Device {row['device']} of process {row['process']} has {peak / 1e9:.2f} GB of its"
        f" {limit / 1e9:.2f} GB in use at the peak ({share(peak, limit)}){reserved_text}{retries}",
        evidence=f"in use at the peak: {lived}"
        if lived
        else "the blocks in use at the peak are not known",
        recommendation=_recommendation(answers, kinds["kind"].to_list()),
        time=time,
        saving_least=0,
        saving_most=time,
        reasoning="memory(): peak_memory and reserved, against the memory of the device (devices);"
        " memory_kinds(): at_peak. Less memory saves no time by itself"
        + (
            "; at most the host's time in the calls that take memory from the driver and give it back in"
            " the steps after the first (calls), which wait for the device."
            if flushed
            else ", so that no saving in time is claimed: it leaves room for a larger batch."
        ),
        confidence="high" if in_use and flushed else "medium" if in_use else "low",
        rows=_rows(answers, here),
        edit=_edit(mine) if flushed else None,
    )


def _rows(answers: Answers, here: pl.Expr) -> pl.DataFrame:
    """Return the ops that had allocated most of the memory in use; ``detail`` has the bytes."""
    ops = answers.memory_by_op().filter(here & (pl.col("at_peak") > 0))
    op_rows = ops.select(
        *(pl.col(name).cast(pl.String) for name in ("op", "layer", "source")),
        "process",
        "device",
        pl.col("allocations").alias("count"),
        pl.format("{} bytes at the peak", "at_peak").alias("detail"),
    )
    return with_rest(op_rows)


def _edit(calls: pl.DataFrame) -> Edit:
    rows = calls["row"].to_numpy()
    return Edit(launches=(rows, np.zeros(len(rows))))


def _recommendation(answers: Answers, kinds: list[str]) -> str:
    used = framework(answers)
    ops = summed_columns(
        answers,
        (
            "op",
            "direction",
        ),
    ).select("op", "direction")
    if any_matches(ops["op"], "(?i)vllm"):
        return (
            "vLLM reserves the memory it is told to: LLM(…, gpu_memory_utilization=…) lower, if other work"
            " needs room on the device; max_num_seqs and max_model_len bound what it needs."
        )
    trains = (ops["direction"] == "backward").any()
    if used == "torch" and trains:
        chosen = [_TORCH[kind] for kind in kinds if kind in _TORCH] or list(_TORCH.values())
        return "; ".join(chosen) + "."
    if used == "torch":
        return "A smaller batch; inference under torch.inference_mode(), with weights in bfloat16 or 8 bits."
    if used == "mindspore":
        return (
            "cell.recompute() for the largest layers, mindspore.set_context(memory_optimize_level='O1'), the"
            " optimizer's state sharded (parallel optimizer), or a smaller batch."
        )
    if used == "jax":
        return "jax.checkpoint around the largest layers, donate_argnums for the state, or a smaller batch."
    if used in ("tensorflow", "keras"):
        return "tf.recompute_grad around the largest layers, mixed_float16, or a smaller batch."
    return "A smaller batch; recompute activations instead of keeping them; shard what each device holds."


DETECTOR = Detector(
    name="memory_near_limit",
    question="Is more than 90 % of a device's memory in use or reserved at the peak?",
    find=find,
    fires="more than 90 % of the device's memory",
    looks_at="memory(): the peak in use and the most reserved, against the size of the device's memory;"
    " memory_kinds() for what was in use at the peak; calls of cudaMalloc and cudaFree in the steps after"
    " the first for what it costs in time.",
    abstains="When memory was not recorded, when the size of the device's memory is not known, and for the"
    " CPU's memory.",
    known_as=("PyTorch profiler plug-in: peak memory above 90 %",),
)
