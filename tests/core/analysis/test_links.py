"""What crosses a link to other devices has no roof: its bandwidth is not the memory's."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.profile import Profile

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
H100 = {"process": 0, "device": 0, "name": "NVIDIA H100 80GB HBM3", "cc": "9.0"}
FOREIGN = "one_shot_exchange(float*)"


@pytest.fixture
def ran(trace_of):
    """A profile of ops, each with one kernel of 1 ms; without kernels where these are None."""

    def build(*rows):
        ranges, calls, kernels = [], [], []
        for number, (text, kernel) in enumerate(rows):
            at = 2_000_000 * number
            where = {"process": 0, "thread": 1}
            category = (
                "communication" if "nccl" in text or "c10d" in text or "gloo" in text else "forward"
            )
            ranges.append({**where, "start": at, "end": at + 1_000_000, "text": text, "kind": "pushpop",
                           "domain": "opscope.torch", "category": category})  # fmt: skip
            if kernel:
                calls.append(
                    {
                        **where,
                        "start": at + 1,
                        "end": at + 2,
                        "correlation": number,
                        "name": "cudaLaunchKernel",
                    }
                )
                kernels.append({"process": 0, "device": 0, "stream": 7, "start": at + 3, "end": at + 1_000_003,
                                "name": kernel, "correlation": number})  # fmt: skip
        tables = {"ranges": ranges}
        if kernels:
            tables |= {"calls": calls, "kernels": kernels, "devices": [H100]}
        return Profile(trace_of(**tables))

    return build


@pytest.mark.parametrize("kernel", [NCCL, FOREIGN])
@pytest.mark.parametrize(
    "text",
    [
        "nccl:all_reduce(f32[4194304]) -> f32[4194304] {world_size=8}",
        "nccl:all_to_all(f32[4194304]) -> f32[4194304] {world_size=8}",
        'c10d::allreduce_([f32[4194304]], _) -> ([=0], _) {process_group="0", world_size=8}',
    ],
)
def test_a_collective_has_no_roof(ran, text, kernel):
    profile = ran((text, kernel), ("aten::add(f32[4194304], f32[4194304]) -> f32[4194304]", "add"))
    found = profile.efficiency("op").with_columns(pl.col("op").cast(pl.String))
    collective = found.filter(pl.col("op") != "aten::add").row(0, named=True)
    assert collective["bytes"] is not None
    for name in ("efficiency", "rated", "bound", "attained_bandwidth", "ideal_time"):
        assert collective[name] in (None, 0.0), name
    other = found.filter(pl.col("op") == "aten::add").row(0, named=True)
    assert other["bound"] == "memory"
    assert other["efficiency"] > 0
    assert set(profile.efficiency("kernel").filter(pl.col("name") == kernel)["efficiency"]) <= {
        None
    }


def test_every_collective_with_a_model_is_of_the_family_without_a_roof():
    from opscope.core.perf import entries

    named = {name: entry.family for name, entry in entries().items()
             if name.startswith(("nccl:", "gloo:", "mpi:", "c10d::allreduce", "c10d::_allgather", "_c10d_functional::all"))}  # fmt: skip
    assert named
    assert set(named.values()) == {"communication"}
