"""Room for a larger batch: free memory and kernels that leave multiprocessors idle, both or nothing."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.detectors.batch_size import find
from tests import traces
from tests.core.advice.made_products import A100, FILL, HALF, MI300, made, one, reason

MM = "aten::mm(f16[32,512], f16[512,512])"
ADAM = "aten::_fused_adamw_([f32[512,512]]*3)"
SIZE = A100["memory"]


def memory(used, device=0):
    place = {"process": 0, "thread": 1, "device": device, "address": 1}
    return [
        {**place, "time": 1, "bytes": used, "total": used, "reserved": used},
        {**place, "time": 9, "bytes": -used, "total": 0, "reserved": used},
    ]


def trained(used=SIZE // 10, *more, **options):
    return made(
        (MM, HALF, 1_000, {"grid": "4,4,1"}),
        (MM, HALF, 2_000, {"grid": "27,2,1"}),
        (MM, HALF, 3_000, {"grid": "1024,1,1"}),
        ("optimizer|" + ADAM, FILL, 800, {"grid": "2048,1,1"}),
        *more,
        allocations=memory(used),
        **options,
    )


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("one of two ranks on V100s, a fifth full", "kineto/ddp_memory_v100.json.gz")


def test_kernels_that_leave_multiprocessors_idle_take_their_share_of_the_time():
    profile = trained()
    found = one(find(profile))
    rows, factors = found.edit.kernels
    # 16 blocks on 108 multiprocessors, but 8 times the batch at most; 54 blocks; the optimizer once for 8
    assert dict(zip(rows.tolist(), factors.tolist(), strict=True)) == pytest.approx(
        {0: 16 / 108, 1: 0.5, 3: 1 / 8}
    )
    assert found.time == 3_800
    saved = int(1_000 * (1 - 16 / 108) + 1_000 + 700)
    told = profile.summary().row(0, named=True)
    wall, busy = told["wall_time"], told["device_busy"]
    assert busy == 6_800
    assert found.saving_most == max(saved, wall - max(wall // 8, busy - saved))
    assert f"{saved / 1e3:.1f} µs of device work" in found.reasoning
    # the four ops of 10 ns each are called an eighth as often
    assert found.edit.host["factor"].to_list() == [1 / 8] * 4
    assert (found.edit.host["end"] - found.edit.host["start"]).to_list() == [10] * 4
    assert "10.0 % full" in found.what
    assert "batch_size=8 × the present one" in found.recommendation
    assert found.confidence == "low"


@pytest.mark.parametrize(("full", "times"), [(0.05, 8), (0.2, 4), (0.3, 2), (0.45, 2)])
def test_the_batch_grows_as_far_as_a_tenth_of_the_memory_is_left(full, times):
    found = one(find(trained(int(SIZE * full))))
    assert f"batch_size={times} ×" in found.recommendation
    assert times * full <= 0.9


@pytest.mark.parametrize(
    "profile",
    [
        lambda: trained(SIZE // 2),  # twice the batch would not fit
        # the GPU is filled
        lambda: trained(SIZE // 10, (MM, HALF, 900_000, {"grid": "1024,1,1"})),
    ],
)
def test_there_is_nothing_to_change(profile):
    assert find(profile()) == []


def test_the_fullest_device_decides():
    events = memory(SIZE // 20) + memory(int(SIZE * 0.8), device=1)
    gpus = [{"process": 0, "device": number, **A100} for number in (0, 1)]
    rows = [(MM, HALF, 1_000, {"grid": "4,4,1"})]
    assert find(made(*rows, device=None, devices=gpus, allocations=events)) == []
    assert (
        one(find(made(*rows, device=None, devices=gpus, allocations=memory(SIZE // 20)))).time
        == 1_000
    )


def test_what_a_data_parallel_rank_exchanges_does_not_grow_with_the_batch():
    reduce = (
        "nccl:all_reduce()",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        5_000,
        {"grid": "999,1,1"},
    )
    found = one(find(trained(SIZE // 10, reduce)))
    assert found.time == 8_800
    to_all = ("nccl:all_to_all()", "ncclDevKernel_SendRecv", 5_000, {"grid": "999,1,1"})
    assert one(find(trained(SIZE // 10, to_all))).time == 3_800


def test_what_is_not_known_is_said():
    row = (MM, HALF, 1_000, {"grid": "4,4,1"})
    assert "memory was not recorded" in reason(find(made(row)))
    assert "not known" in reason(find(made(row, device=None, allocations=memory(9))))
    assert "blocks" in reason(find(made((MM, HALF, 9, {"grid": None}), allocations=memory(9))))
    assert "blocks" in reason(find(made(row, device=MI300, allocations=memory(9))))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        # 6.6 of 34 GB, and two fifths of the time exchange gradients
        ("kineto/ddp_memory_v100.json.gz", True),
        # 2.8 of 34 GB at a batch of 32, but 1568 and more blocks: larger would not be faster for each sample
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", False),
        ("kineto/qwen1.5_0.5b_h100.json.gz", False),
        ("kineto/timesformer_h100.json.gz", False),
    ],
)
def test_real_traces(shared, name, found):
    profile = traces.load(shared / name)
    answer = find(profile)
    if not found:
        assert answer == []
        return
    said = one(answer)
    used, size = profile.memory().filter(pl.col("device") == 1)["peak_memory"][0], 34_089_730_048
    assert f"{100 * used / size:.1f} % full" in said.what
    reduced = profile.kernels().filter(pl.col("op") == "nccl:all_reduce")["duration"].sum()
    assert reduced < said.time < profile.kernels()["duration"].sum()


def test_a_trace_without_memory_does_not_tell(shared):
    answer = find(traces.load(shared / "kineto/ddp_rank3of8_a100_stacks.json.gz"))
    assert "profile_memory=True" in reason(answer)
