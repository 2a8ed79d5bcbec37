"""Stretches of late launches: found where they are, left alone in CUDA graphs and where kernels set the pace."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.launch_bound import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.timeline import MAIN, US, launching, op, steady, training

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("one rank of a training on two V100s", "kineto/ddp_memory_v100.json.gz")
MS = 1000 * US


def test_the_gaps_between_late_launches_are_what_it_is_about():
    made = training(
        [*steady(1, 4 * MS), op("aten::mul(f32[8], f32[8])", 0, 4 * MS)],
        launching(0, 4 * MS, 40 * US, 10 * US),
    )
    (found,) = DETECTOR.find(made)
    assert found.time == 99 * 30 * US
    assert found.saving_least == 0
    # the device idles in 99 gaps, 5 us before the first kernel and 25 after the last; the host took longer
    assert found.saving_most == 99 * 30 * US + 5 * US + 25 * US < 3963 * US - 40 * US
    assert found.rows["op"].to_list() == ["aten::mul"]
    assert found.rows["time"].sum() == found.time
    assert "torch.compile" in found.recommendation
    assert found.edit.host.rows() == [(0, MAIN, 40 * US, 3963 * US, 0.0)]
    (row,) = made.advice().filter(detector="launch_bound").rows(named=True)
    assert 0 < row["saving"] <= found.saving_most


def test_gradients_set_to_zero_one_by_one_have_their_own_advice():
    made = training(
        [*steady(1, 4 * MS), op("aten::zero_(f32[8])", 0, 4 * MS)],
        launching(0, 4 * MS, 40 * US, 10 * US),
    )
    (found,) = DETECTOR.find(made)
    assert "set_to_none=True" in found.recommendation


@pytest.mark.parametrize(("every", "took", "graph"), [
    (40 * US, 60 * US, None),  # kernels set the pace: each is queued behind the one before
    (40 * US, 39 * US, None),  # the gaps are 2.5 % of the steps
    (40 * US, 10 * US, 3),  # a CUDA graph's
    (600 * US, 10 * US, None),  # between the launches the host does something else
])  # fmt: skip
def test_what_launches_do_not_slow_down_is_left_alone(every, took, graph):
    launches, device = [], 0
    for at in range(0, 60 * every, every):
        start = max(device, at + 5 * US)
        device = start + took
        launches.append((at, at + 3 * US, start, device))
    assert list(DETECTOR.find(training(steady(1, 70 * every), launches, graph=graph))) == []


def test_it_cannot_tell_without_launches_or_a_gpu():
    made = training(steady(1, 4 * MS), launching(0, 4 * MS, 40 * US, 10 * US))
    trace = made.trace.replace(calls=made.trace["calls"].clear())
    for one, why in (
        (type(made)(trace), "no launches"),
        (training(steady(1, 10)), "the CPU is the device"),
    ):
        answer = DETECTOR.find(one)
        assert isinstance(answer, CannotTell)
        assert why in answer.reason


@pytest.mark.parametrize(("name", "found", "why"), [
    ("ddp_memory_v100.json.gz", 0.36, "3,900 kernels a step with a median of 6 us, 31 us of idling before most"),
    ("nccl_meta.json.gz", 0.36, "700 kernels a step with a median of 6 us, under a profiler, 70 us apart"),
    ("resnet50_nw0_step_span1.pt.trace.json.gz", 0.08, "gradients are zeroed one by one, a fill each 40 us"),
    ("qwen1.5_0.5b_h100.json.gz", 0, "kernels of 26 us: 25 late launches in all"),
    ("sampled_rank0.json.gz", 0, "the host stays away for milliseconds, and not between launches"),
    ("vision_transformer_rank0.json.gz", 0, "1 % of the steps waits for the host"),
    ("timesformer_h100.json.gz", 0, "5 late launches in all"),
])  # fmt: skip
def test_real_traces(shared, name, found, why):
    answer = DETECTOR.find(traces.load(shared / "kineto" / name))
    assert len(answer) == (1 if found else 0), why
    if found:
        whole = traces.load(shared / "kineto" / name).steps()["time"].sum()
        assert answer[0].time / whole == pytest.approx(found, abs=0.01), why


def test_work_of_cuda_graphs_counts_nowhere(shared):
    answer = DETECTOR.find(traces.load(shared / "kineto/vllm_decode_cudagraph.json.gz"))
    assert isinstance(answer, CannotTell)  # and it has no steps
