"""Collectives of GPU training by gloo: found under DDP, left alone beside NCCL, on a CPU, on old devices."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.ddp_without_nccl import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import ALL_REDUCE, gloo_all_reduce, kernel, one, profile, ranged

MS = 1_000_000


def training(cc="8.0", ddp=True, gloo=True, nccl=False, gpu=True):
    ranges = [ranged(0, 20 * MS, "DistributedDataParallel.forward" if ddp else "forward")]
    ranges.append(ranged(20 * MS, 25 * MS, "aten::mm(f32[8,8], f32[8,8])"))
    if gloo:
        ranges += gloo_all_reduce(0, 30 * MS, 60 * MS)
    else:
        ranges.append(
            ranged(30 * MS, 31 * MS, "c10d::allreduce_([f32[8]], _) -> ([=0], _)", "communication")
        )
    kernels = [kernel(0, 40 * MS)]
    if nccl:
        kernels.append(kernel(40 * MS, 50 * MS, ALL_REDUCE))
    tables = {"kernels": kernels} if gpu else {}
    return profile(ranges=ranges, devices=[{"process": 0, "device": 0, "cc": cc}], **tables)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: DistributedDataParallel on a GPU with gloo", training)


def test_the_time_is_the_union_of_what_gloo_ran():
    found = one(DETECTOR, training())
    assert (found.time, found.saving_least, found.saving_most) == (30 * MS, 0, 30 * MS)
    assert "of which 20.0 ms" in found.what, "10 of the 30 ms run beside a kernel"
    assert found.confidence == "high"
    assert "'nccl'" in found.recommendation


def test_an_unknown_capability_is_said():
    found = one(DETECTOR, training(cc=None))
    assert "not recorded" in found.evidence
    assert found.confidence == "medium"


@pytest.mark.parametrize("made", [training(nccl=True), training(gpu=False), training(cc="3.0")])
def test_gloo_beside_nccl_on_a_cpu_or_on_an_old_device_is_nothing_to_change(made):
    assert DETECTOR.find(made) == []


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (training(ddp=False), "whether their tensors were on the GPU"),
        (training(gloo=False), "another backend's work"),
        (profile(kernels=[kernel(0, 9)]), "no ops"),
    ],
)
def test_where_it_cannot_be_told(made, why):
    answer = DETECTOR.find(made)
    assert isinstance(answer, CannotTell)
    assert why in answer.reason


@pytest.mark.parametrize("name", ["ddp_memory_v100", "nccl_meta", "ddp_rank3of8_a100_stacks"])
def test_real_traces_use_nccl(shared, name):
    assert DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz")) == []
