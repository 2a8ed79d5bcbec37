"""Kineto files of a made job: each rank runs a program of inputs, launches, kernels, collectives and messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: A rank's program: ("input", µs), ("launch", µs), ("compute", µs), ("step", number), ("samples", {name: value}),
#: ("all_reduce" or another collective, group, elements, {options}), ("send" or "recv", peer, elements).
Action = tuple[Any, ...]
Program = Callable[[int], Sequence[Action]]
#: How long a collective takes from when its last rank came, and a message, in µs.
TRANSFER, MESSAGE = 25, 10
_NCCL = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base",
         "all_to_all": "all_to_allv", "broadcast": "broadcast"}  # fmt: skip
_KERNEL = {"all_reduce": "AllReduce_Sum_f32_RING_LL", "all_gather": "AllGather_RING_LL",
           "reduce_scatter": "ReduceScatter_Sum_f32_RING_LL", "all_to_all": "SendRecv",
           "broadcast": "Broadcast_RING_LL", "send": "SendRecv", "recv": "SendRecv"}  # fmt: skip


class _Rank:
    def __init__(self, rank: int, program: Sequence[Action], offset: float) -> None:
        self.rank, self.program, self.offset = rank, list(program), offset
        self.place, self.time, self.links = 0, 10_000.0, 0
        self.events: list[dict[str, Any]] = []
        self.step: tuple[int, float] | None = None

    def add(
        self, cat: str, name: str, ts: float, dur: float, where: tuple[int, int], **args: Any
    ) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": where[0], "tid": where[1],
             "ts": round(ts + self.offset, 3), "dur": round(dur, 3), "args": args}
        )  # fmt: skip

    def end_step(self) -> None:
        if self.step is not None:
            number, begun = self.step
            self.add(
                "user_annotation", f"ProfilerStep#{number}", begun, self.time - begun, self.host
            )
            self.step = None

    @property
    def host(self) -> tuple[int, int]:
        return 1000 + self.rank, 1

    def launched(
        self, name: str, start: float, end: float | None, stream: int, op: str, **args: Any
    ) -> None:
        """The op that launches a kernel, and the kernel; without an end the kernel is not recorded."""
        self.links += 1
        told = {} if op.startswith("aten") else args
        self.add("cpu_op", op, start - 6, 5, self.host, **told)
        self.add(
            "cuda_runtime", "cudaLaunchKernel", start - 5, 2, self.host, correlation=self.links
        )
        if end is not None:
            self.add("kernel", name, start, end - start, (0, stream), device=0, stream=stream,
                     correlation=self.links, **args)  # fmt: skip


def job_files(
    folder: Path,
    ranks: int,
    program: Program,
    groups: dict[str, Sequence[int]] | None = None,
    *,
    offset_us: dict[int, float] | None = None,
    hosts: int = 0,
) -> list[Path]:
    """Write a file per rank. ``groups``: name → members (``"0"``: all). ``hosts``: ranks a host (0: one host).

    A collective ends for all at once, ``TRANSFER`` after its last member came; where a member never comes, the
    others' calls are in the trace and their kernels are not, and these ranks go no further.
    """
    known = {"0": range(ranks), **(groups or {})}
    all_ranks = [_Rank(one, program(one), (offset_us or {}).get(one, 0.0)) for one in range(ranks)]
    while _advanced(all_ranks, known):
        pass
    files = []
    for one in all_ranks:
        _stuck(one, known)
        one.end_step()
        path = folder / f"rank{one.rank}.json"
        path.write_text(
            json.dumps(
                {
                    "schemaVersion": 1,
                    "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}],
                    "distributedInfo": {"backend": "nccl", "rank": one.rank, "world_size": ranks},
                    "hostname": f"host{one.rank // hosts if hosts else 0}",
                    "traceEvents": one.events,
                }
            )
        )
        files.append(path)
    return files


def _advanced(ranks: list[_Rank], groups: dict[str, Sequence[int]]) -> bool:
    """Run each rank up to its next collective, then finish one for which all have come."""
    for one in ranks:
        _run_alone(one)
    for one in ranks:
        action = _next(one)
        if action is None:
            continue
        if action[0] in ("send", "recv"):
            other = ranks[action[1]]
            theirs = _next(other)
            met = {"send": "recv", "recv": "send"}[action[0]]
            if theirs is not None and theirs[:2] == (met, one.rank):
                end = max(one.time, other.time) + MESSAGE
                for rank, mine in ((one, action), (other, theirs)):
                    _exchange(rank, mine, end, groups)
                return True
            continue
        members = [ranks[member] for member in groups[action[1]]]
        if all(
            (theirs := _next(each)) is not None and theirs[:2] == action[:2] for each in members
        ):
            end = max(each.time for each in members) + TRANSFER
            for each in members:
                _exchange(each, _next(each), end, groups)
            return True
    return False


def _next(one: _Rank) -> Action | None:
    return one.program[one.place] if one.place < len(one.program) else None


def _run_alone(one: _Rank) -> None:
    while (action := _next(one)) is not None and action[0] in (
        "input",
        "launch",
        "compute",
        "step",
        "samples",
    ):
        kind, value = action[:2]
        if kind == "step":
            one.end_step()
            one.step = (value, one.time)
        elif kind == "input":
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            one.add("user_annotation", name, one.time, value, one.host)
            one.time += value
        elif kind == "launch":
            one.time += value
        elif kind == "compute":
            one.launched("ampere_sgemm_128x64_nn", one.time, one.time + value, 7, "aten::mm",
                         **{"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]})  # fmt: skip
            one.time += value
        one.place += 1


def _exchange(
    one: _Rank, action: Action | None, end: float | None, groups: dict[str, Sequence[int]]
) -> None:
    assert action is not None
    kind, whom, elements = action[:3]
    options = action[3] if len(action) > 3 else {}
    told: dict[str, Any] = {
        "dtype": "Float",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        **options,
    }
    if kind in ("send", "recv"):
        told |= {"Collective name": kind, "Process Group Name": "0", "Group size": len(groups["0"]),
                 "Process Group Ranks": json.dumps(list(groups["0"])),
                 ("Dst Rank" if kind == "send" else "Src Rank"): whom}  # fmt: skip
    else:
        told |= {"Collective name": _NCCL[kind], "Process Group Name": whom, "Group size": len(groups[whom]),
                 "Process Group Ranks": json.dumps(list(groups[whom]))}  # fmt: skip
    kernel = f"ncclDevKernel_{_KERNEL[kind]}(ncclDevKernelArgs)"
    one.launched(kernel, one.time, end, 20, "record_param_comms", **told)
    one.place += 1
    one.time = one.time if end is None else end


def _stuck(one: _Rank, groups: dict[str, Sequence[int]]) -> None:
    """The call on which the rank waits forever is in the trace; its kernel has not ended."""
    if (action := _next(one)) is not None:
        _exchange(one, action, None, groups)
        one.time += 50
