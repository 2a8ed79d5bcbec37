"""Collectives of GPU training by gloo or MPI, which go through the host, where NCCL could be used."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.communicated import patterns
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.pace import count
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import named
from opscope.core.communication import HOST_BACKENDS
from opscope.core.perf import kinds
from opscope.core.tables.columns import matching
from opscope.core.tables.intervals import merge, subtract

#: Names of the work of other backends.
_OTHERS: Final = rf"^({'|'.join(HOST_BACKENDS)}):"
#: Names of PyTorch's calls of collectives, whatever backend runs them.
_CALLED: Final = r"^c10d::"
#: The least compute capability that NCCL supports, according to the PyTorch profiler's plug-in.
_LEAST_CC: Final = 3.5


def find(answers: Answers) -> Answer:
    """Return one finding if a process that uses a GPU communicates by gloo, MPI or UCC and not by NCCL."""
    trace = answers.trace
    if trace["ranges"].is_empty():
        return CannotTell("no ops were recorded, so that the backend of collectives is not known")
    if answers.cpu_only:
        return []
    kernels = trace["kernels"]
    on_gpu = kernels["process"].unique()
    with_nccl = kernels.filter(pl.Series(kinds.communicates(kernels["name"]), dtype=pl.Boolean))
    lacking = set(on_gpu.drop_nulls()) - set(with_nccl["process"].unique())
    if not lacking or not named(answers, rf"{_OTHERS}|{_CALLED}"):
        return []
    ops = answers.ops(categories=True)
    ran = ops.filter(
        pl.Series(matching(ops["op"], _OTHERS), dtype=pl.Boolean)
        & pl.col("process").is_in(list(lacking))
    )
    if ran.is_empty():
        called = ops.filter(
            pl.Series(matching(ops["op"], _CALLED), dtype=pl.Boolean)
            & pl.col("process").is_in(list(lacking))
        )
        if len(called):
            return CannotTell(
                "collectives were called in a process that uses a GPU, and neither kernels of NCCL nor"
                " another backend's work was recorded"
            )
        return []
    if "ddp" not in patterns(answers) and "fsdp" not in patterns(answers):
        return CannotTell(
            "gloo or MPI ran collectives in a process that uses a GPU, and nothing shows whether their"
            " tensors were on the GPU"
        )
    capable = _capable(answers, set(ran["process"].unique()))
    if capable is False:
        return []
    return [_finding(answers, ran, capable)]


def _capable(answers: Answers, processes: set[int]) -> bool | None:
    """Whether NCCL runs on all devices of the processes; None where a capability is not recorded."""
    devices = answers.trace["devices"].filter(pl.col("process").is_in(list(processes)))
    capabilities = devices["cc"].cast(pl.Float64, strict=False)
    if (capabilities < _LEAST_CC).any():
        return False
    return None if devices.is_empty() or capabilities.null_count() else True


def _finding(answers: Answers, ran: pl.DataFrame, capable: bool | None) -> Finding:
    ran = ran.with_columns((pl.col("end") - pl.col("start")).alias("duration"))
    totals, exposed = {}, {}
    kernels = answers.trace["kernels"]
    for (process,), part in ran.group_by("process"):
        spans = merge(*(part[name].to_numpy().astype(np.int64) for name in ("start", "end")))
        busy = kernels.filter(pl.col("process") == process)
        alone = subtract(spans, merge(*(busy[name].to_numpy() for name in ("start", "end"))))
        totals[process] = int((spans[1] - spans[0]).sum())
        exposed[process] = int((alone[1] - alone[0]).sum())
    worst = max(exposed, key=lambda process: (exposed[process], totals[process]))
    wall = answers.summary()["wall_time"][0]
    backends = ", ".join(
        sorted({name.partition(":")[0] for name in ran["op"].cast(pl.String).unique()})
    )
    unknown = "" if capable else "; the compute capability of the devices is not recorded"
    return Finding(
        what=f"{count(len(ran), 'collective')} of GPU training {'runs' if len(ran) == 1 else 'run'} by"
        f" {backends}{', through the host' if backends == 'gloo' else ''}: {ms(totals[worst])}"
        f" of process {worst}, of which {ms(exposed[worst])}"
        f" ({share(exposed[worst], wall)} of the run) beside no kernel",
        evidence=f"{places(ran, 'collectives')}; no kernel of NCCL in {len(totals):,} processes{unknown}",
        recommendation="torch.distributed.init_process_group('nccl') (on AMD the same name is RCCL); keep"
        " gloo"
        " for tensors on the CPU: init_process_group('cpu:gloo,cuda:nccl').",
        time=totals[worst],
        saving_least=0,
        saving_most=totals[worst],
        reasoning="ops(): the union of what the backend ran, of the process with most of it that no kernel"
        " hides. At most all of it, as NCCL copies nothing through the host; at least nothing. NCCL's own"
        " time"
        " is not known from this profile, so that there is no best estimate.",
        confidence="high" if capable else "medium",
        rows=evidence(ran),
    )


DETECTOR = Detector(
    name="ddp_without_nccl",
    question="Does training on GPUs communicate by gloo or MPI although NCCL could be used?",
    find=find,
    fires="one collective",
    looks_at="ops(): what gloo, MPI or UCC ran in processes that ran kernels on a GPU and none of NCCL, under"
    " DistributedDataParallel or FSDP; devices: compute capability 3.5 or above.",
    abstains="When no ops were recorded; when calls of collectives were recorded, but neither NCCL's"
    " kernels nor"
    " another backend's work; when nothing shows that the tensors are on the GPU.",
    known_as=("PyTorch profiler plug-in: DDP without NCCL",),
)
