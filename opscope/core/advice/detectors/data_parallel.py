"""torch.nn.DataParallel: one process drives several devices, and copies the model to each in every step."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice.communicated import communicates
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.tables.columns import matching
from opscope.core.tables.intervals import union_length

#: The range that DataParallel records, and the backward nodes of its replication.
_SHOWS: Final = (
    r"(^|[^A-Za-z])DataParallel\.forward"
    r"|^(autograd::engine::evaluate_function: )?(BroadcastBackward|ReduceAddCoalesced)"
)


def find(answers: Answers) -> Answer:
    """Return one finding for each process that runs DataParallel on more than one device."""
    kernels = answers.trace["kernels"]
    ranges = answers.trace["ranges"]
    if kernels.is_empty():
        if answers.cpu_only and len(ranges):
            return []
        return CannotTell("no kernels were recorded")
    devices = kernels.group_by("process").agg(pl.col("device").n_unique().alias("devices"))
    several = devices.filter(pl.col("devices") > 1).sort("process")
    if several.is_empty():
        return []
    if ranges.is_empty():
        return CannotTell(
            "a process runs kernels on several devices, and no ops or ranges were recorded that show why:"
            " capture with ranges (opscope run, or torch.profiler)"
        )
    shows = ranges.filter(pl.Series(matching(ranges["text"], _SHOWS), dtype=pl.Boolean))
    uneven = several.join(
        shows.group_by("process").agg(
            pl.len().alias("passes"), pl.col("text").cast(pl.String).first().alias("shown")
        ),
        on="process",
    )
    return [_finding(answers, row) for row in uneven.sort("process").rows(named=True)]


def _finding(answers: Answers, row: dict[str, Any]) -> Finding:
    process, devices = row["process"], row["devices"]
    kernels = answers.kernels(categories=True)
    mine = kernels.filter(
        (pl.col("process") == process) & ~pl.Series(communicates(answers, kernels))
    )
    talks = kernels.filter(
        (pl.col("process") == process) & pl.Series(communicates(answers, kernels))
    )
    copies = answers.memops(categories=True).filter(
        (pl.col("process") == process)
        & ((pl.col("kind").cast(pl.String) == "PtoP") | pl.col("peer").is_not_null())
    )
    busy = {
        device: union_length(part["start"].to_numpy(), part["end"].to_numpy())
        for (device,), part in mine.group_by("device")
    }
    start, end = kernels.filter(pl.col("process") == process).select(
        pl.col("start").min(), pl.col("end").max()
    ).row(0)  # fmt: skip
    window = int(end - start)
    mean = int(np.mean(list(busy.values()))) if busy else 0
    moved = int(talks["duration"].sum()) + int(copies["duration"].sum())
    each = ", ".join(f"device {device}: {ms(time)}" for device, time in sorted(busy.items()))
    most = max(window - mean, 0)
    return Finding(
        what=f"Process {process} trains with torch.nn.DataParallel on {devices} devices: in {ms(window)} they"
        f" compute {share(mean, window)} of the time in the mean, and {ms(moved)} go to copies of the model,"
        " of inputs and of outputs between them",
        evidence=f"{row['shown']} and its like: {row['passes']:,} ranges; computing: {each}; copies between"
        f" devices: {places(copies, 'copies') if len(copies) else 'none recorded'}",
        recommendation="torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank]) in one"
        " process for each device: torchrun --nproc-per-node=gpu train.py, with"
        " torch.distributed.init_process_group('nccl') and a DistributedSampler for the data.",
        time=moved,
        saving_least=0,
        saving_most=most,
        reasoning="kernels(): per device the union of the kernels other than those of collectives; memops():"
        " duration of copies between devices. At most the window from the first kernel to the last, less what"
        " the devices compute in the mean: with a process for each, they still compute that. At least"
        " nothing; there is no best estimate, as DistributedDataParallel has all-reduces instead of the"
        " copies.",
        confidence="high",
        rows=evidence(copies) if len(copies) else None,
    )


DETECTOR = Detector(
    name="data_parallel",
    question="Does one process train on several devices with torch.nn.DataParallel?",
    find=find,
    fires="kernels of one process on two devices, and a name that shows DataParallel",
    looks_at="kernels(): processes with kernels on more than one device; ranges: DataParallel's own"
    " range, and"
    " the backward nodes of its replicas (BroadcastBackward, ReduceAddCoalesced).",
    abstains="When no kernels were recorded, and when a process uses several devices but no ops or ranges"
    " were"
    " recorded.",
    known_as=("PyTorch profiler plug-in: DataParallel with more than one device",),
)
