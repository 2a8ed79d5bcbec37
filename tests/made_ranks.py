"""Small Kineto files of the ranks of one made job: steps, ops, kernels and collectives."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

#: The duration of a step in µs, and how many a file has.
STEP, STEPS = 1000, 4


def rank_files(
    folder: Path,
    ranks: int = 2,
    *,
    slow: int | None = None,
    offset_us: dict[int, float] | None = None,
) -> list[Path]:
    """Write ``rank0.json`` …; rank ``slow`` computes longer, ``offset_us`` moves the clocks of ranks.

    Two ranks make a host. The all-reduce of a step begins when the rank has computed and ends for all
    at once, after the last one has come.
    """
    files = []
    for rank in range(ranks):
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(rank_trace(rank, ranks, slow, (offset_us or {}).get(rank, 0.0))))
        files.append(path)
    return files


def rank_trace(rank: int, ranks: int, slow: int | None = None, offset: float = 0.0) -> dict:
    """The trace of one rank as Kineto writes it, times in µs."""
    pid, events, links = 1000 + rank, [], 0

    def add(
        cat: str, name: str, ts: float, dur: float, where: tuple[int, int], **args: object
    ) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": where[0], "tid": where[1],
                       "ts": round(ts + offset, 3), "dur": round(dur, 3), "args": args})  # fmt: skip

    work = [[computed(one, step, slow) for one in range(ranks)] for step in range(STEPS)]
    for step in range(STEPS):
        begin = 10_000 + step * STEP
        add("user_annotation", f"ProfilerStep#{step}", begin, STEP - 10, (pid, 1))
        add("cpu_op", "aten::mm", begin + 5, 20, (pid, 1), **{"Input Dims": [[64, 64], [64, 64]],
            "Input type": ["float", "float"], "External id": step + 1})  # fmt: skip
        links += 1
        add("cuda_runtime", "cudaLaunchKernel", begin + 10, 5, (pid, 1), correlation=links)
        add("kernel", "ampere_sgemm_128x64_nn", begin + 30, work[step][rank], (0, 7), device=0, stream=7,
            correlation=links, **{"External id": step + 1})  # fmt: skip
        told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 4096,
                "Out msg nelems": 4096, "Process Group Name": "0", "Group size": ranks,
                "Process Group Ranks": json.dumps(list(range(ranks)))}  # fmt: skip
        links += 1
        add("cpu_op", "record_param_comms", begin + 40, 10, (pid, 1), **told)
        add("cuda_runtime", "cudaLaunchKernel", begin + 42, 5, (pid, 1), correlation=links)
        start, end = begin + 30 + work[step][rank], begin + 30 + max(work[step]) + 25
        add("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", start, end - start,
            (0, 20), device=0, stream=20, correlation=links, **told)  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "hostname": f"host{rank // 2}",
        "traceEvents": events,
    }


def computed(rank: int, step: int, slow: int | None) -> float:
    """How long the rank computes in the step, in µs."""
    return 300 + Random(rank * 1000 + step).randrange(20) + (250 if rank == slow else 0)
