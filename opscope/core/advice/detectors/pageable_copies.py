"""Copies between pageable host memory and the GPU: pinned memory makes them faster and asynchronous."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.saying import evidence, ms, places
from opscope.core.tables.intervals import merge, subtract

#: CUDA copies up to this many bytes to the GPU without making the host wait (CUDA C++ Programming Guide,
#: asynchronous execution: 64 KB). The host waits for larger ones (CUDA Runtime API, synchronization
#: behavior: pageable memory is first copied into the driver's pinned memory).
_STAGED: Final = 64 << 10
_WAYS: Final = {"HtoD": ("src_kind", "to the GPU"), "DtoH": ("dst_kind", "from the GPU")}
_PYTORCH: Final = "aten::"


def find(answers: Answers) -> Answer:
    """Return a finding for each direction with pageable copies; copies of at most 64 KB are left out."""
    copies = answers.memops(categories=True).filter(
        pl.col("kind").cast(pl.String).is_in(list(_WAYS))
    )
    if copies.is_empty():
        return CannotTell("no copies between the host and a GPU were recorded")
    findings, unknown = [], 0
    for kind, (column, way) in _WAYS.items():
        mine = copies.filter(pl.col("kind").cast(pl.String) == kind)
        memory = pl.col(column).cast(pl.String)
        untyped = memory.is_null() | ~memory.is_in(["pageable", "pinned", "managed"])
        unsized = (memory == "pageable") & pl.col("bytes").is_null()
        unknown += mine.filter(untyped | unsized).height
        pageable = mine.filter(memory == "pageable")
        slow = pageable.filter(pl.col("bytes") > _STAGED)
        if len(slow):
            pinned = mine.filter(memory == "pinned")
            findings.append(_finding(answers, slow, len(pageable), pinned, way))
    if not findings and unknown:
        return CannotTell(f"the profile lacks the kind of memory or the size of {unknown:,} copies")
    rest = f"; copies without a kind of memory or a size: {unknown:,}" if unknown else ""
    return [replace(finding, evidence=finding.evidence + rest) for finding in findings]


def _finding(
    answers: Answers, slow: pl.DataFrame, pageable: int, pinned: pl.DataFrame, way: str
) -> Finding:
    time, size = int(slow["duration"].sum()), int(slow["bytes"].sum())
    alone = _alone(answers, slow)
    waited = slow.select((pl.col("call_end") - pl.col("call_start")).alias("wait"))["wait"]
    is_complete = waited.null_count() == 0
    blocked = int(waited.sum())
    rate = f"{size / time:.1f} GB/s" if time else "no measurable time"
    fast = pinned.filter(pl.col("bytes") > _STAGED).select(pl.col("bytes", "duration").sum()).row(0)
    beside = (
        f"; copies from pinned memory reach {fast[0] / fast[1]:.1f} GB/s here" if fast[1] else ""
    )
    bound = (
        f"at most the {ms(alone)} in which no kernel ran beside a copy, and the {ms(blocked)} that the host"
        " spent in the calls"
        if is_complete
        else "not bounded: the profile lacks the calls that made some of the copies, in which the host waits"
    )
    return Finding(
        what=f"{len(slow):,} of {pageable:,} copies {way} with pageable memory are of more than"
        f" {_STAGED >> 10} KB: {size / 1e6:,.1f} MB in {ms(time)}, {rate}{beside}",
        evidence=places(slow, "copies"),
        recommendation=_recommendation(slow, way),
        time=time,
        saving_least=0,
        saving_most=alone + blocked if is_complete else None,
        reasoning=f"At least nothing: other work may set the pace. {bound[0].upper()}{bound[1:]}. The"
        " change replayed: each call takes as long as the shortest of its name, a call right behind it that"
        " synchronises is gone, and the copies take as long as they do.",
        # where kernels hide most of the time, the copies may not set the pace
        confidence="high" if is_complete and time and alone + blocked > time // 2 else "medium",
        rows=evidence(slow),
        edit=_asynchronous(answers, slow),
    )


def _asynchronous(answers: Answers, slow: pl.DataFrame) -> Edit | None:
    """Return the certain effect of pinned memory: each call takes as long as the shortest of its name, and a
    synchronising call right after it takes no time; the copies take as long as before."""
    copies = slow.select("process", "correlation").drop_nulls().unique()
    name, synchronises = pl.col("name").cast(pl.String), r"(?i)Stream_?Synchronize"
    calls = answers.trace["calls"].select(
        "process", "thread", "correlation", "name", "start", "end"
    )
    copied = pl.col("name").is_in(
        calls.join(copies, on=["process", "correlation"], how="semi")["name"].unique().implode()
    )
    lasted = (pl.col("end") - pl.col("start")).cast(pl.Float64)
    # only the threads of the copies matter, and the calls right after the copies
    near = (
        calls.with_row_index("call")
        .sort("process", "thread", "start", maintain_order=True)
        .with_columns(
            pl.when(name.shift(-1).str.contains(synchronises))
            .then(pl.col("call").shift(-1).over("process", "thread"))
            .alias("sync")
        )
        .filter(copied)
        .with_columns((lasted.min().over("name") / lasted).fill_nan(1.0).alias("factor"))
        .join(copies, on=["process", "correlation"], how="semi")
    )
    sync = near["sync"].drop_nulls()
    rows = np.concatenate([near["call"].to_numpy(), sync.to_numpy()]).astype(np.int64)
    factor = np.concatenate([near["factor"].fill_null(1.0).to_numpy(), np.zeros(len(sync))])
    return Edit(launches=(rows, factor)) if len(rows) else None


def _alone(answers: Answers, slow: pl.DataFrame) -> int:
    """Return the time (ns) of the copies during which no kernel ran on the same device."""
    total = 0
    kernels = answers.trace["kernels"]
    for (process, device), part in slow.group_by("process", "device"):
        beside = kernels.filter(
            pl.col("process").eq_missing(process), pl.col("device").eq_missing(device)
        )
        start, end = subtract(_spans(part), _spans(beside))
        total += int((end - start).sum())
    return total


def _spans(frame: pl.DataFrame) -> Any:
    start, end = (frame[name].to_numpy().astype(np.int64) for name in ("start", "end"))
    return merge(start, end)


def _recommendation(slow: pl.DataFrame, way: str) -> str:
    names = slow["op"].cast(pl.String).drop_nulls()
    torch = len(names) > 0 and bool(names.str.starts_with(_PYTORCH).all())
    if way == _WAYS["DtoH"][1]:
        return (
            "Copy into a pinned buffer that is kept: host = torch.empty(shape, pin_memory=True);"
            " host.copy_(tensor, non_blocking=True), and wait for an event before it is read. Copy less"
            " often, or less: reduce on the GPU first."
            if torch
            else "Copy into a pinned (page-locked) buffer that is kept, asynchronously, and wait for an event"
            " before it is read."
        )
    if not torch:
        return "Keep the host's buffers in pinned (page-locked) memory and copy asynchronously."
    steps = slow["step"].drop_nulls().n_unique() if "step" in slow.columns else 0
    if steps > 1 or (slow["direction"].cast(pl.String) == "input").any():
        return "Load with DataLoader(…, pin_memory=True) and copy with tensor.to(device, non_blocking=True)."
    return (
        "Copy from pinned memory: tensor.pin_memory().to(device, non_blocking=True); batches of a loader"
        " with DataLoader(…, pin_memory=True). What is copied once, as weights are, costs once."
    )


DETECTOR = Detector(
    name="pageable_copies",
    question="Do copies of more than 64 KB between host and GPU use pageable memory?",
    find=find,
    fires="one copy of more than 64 KB",
    looks_at="The kind of memory at both ends of each copy (`src_kind`, `dst_kind` of `memops()`), its size,"
    " and the kernels that ran beside it.",
    abstains="No copy between the host and a GPU was recorded, or none is found and the kind of memory or the"
    " size of some is not known.",
)
