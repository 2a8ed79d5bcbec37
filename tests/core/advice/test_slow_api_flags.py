"""Debugging modes that a profile proves: launches that wait, checks for NaN, allocation in each step."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.finding import CannotTell
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

ADD = "aten::add(f32[64], f32[64])"


def blocking(waiting=30, free=0):
    """Kernels of 10 µs; the launch of each lasts until 2 µs after the kernel's end."""
    rows = [
        ran(ADD, 20_000 * n + 5_000, 20_000 * n + 15_000, call=(20_000 * n, 20_000 * n + (17_000 if n < waiting else 4_000)))
        for n in range(waiting + free)
    ]  # fmt: skip
    return on_gpu(rows)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: every launch waits, as with CUDA_LAUNCH_BLOCKING=1", blocking)


def find(profile):
    return asked("slow_api_flags", profile)


def test_launches_that_last_until_their_kernels_end():
    (found,) = find(blocking())
    assert (found.time, found.saving_least, found.saving_most) == (30 * 17_000, 0, 30 * 17_000)
    assert "30 of 30 launch calls" in found.what
    assert "CUDA_LAUNCH_BLOCKING" in found.recommendation
    # what is left of a call is what its kernel did not take
    assert set(found.edit.launches[1]) == {7_000 / 17_000}


def test_some_launches_that_wait_are_no_mode():
    assert find(blocking(waiting=10, free=20)) == []
    assert isinstance(find(blocking(waiting=5)), CannotTell)


def test_kernels_that_begin_before_their_launch_show_that_clocks_differ():
    rows = [
        ran(ADD, 20_000 * n, 20_000 * n + 9_000, call=(20_000 * n + 9_500, 20_000 * n + 12_000))
        for n in range(30)
    ]
    assert find(on_gpu(rows)) == []


def backward(checks, others=10, steps=2):
    rows = []
    for step in range(steps):
        at = 1_000_000 * step
        rows.append({"text": f"step {step}", "start": at, "end": at + 900_000, "category": "step"})
        texts = ["aten::mm(f32[8,8], f32[8,8])"] * others
        texts += [
            "aten::isnan(f32[8,8])",
            "aten::_is_any_true(bool[8,8])",
            "aten::_local_scalar_dense(bool[])",
        ] * checks
        rows += [
            {
                "text": text,
                "start": at + 1_000 * n,
                "end": at + 1_000 * n + 500,
                "category": "backward",
            }
            for n, text in enumerate(texts)
        ]
    return on_cpu(rows)


def test_anomaly_mode_checks_what_each_backward_node_returns():
    (found,) = find(backward(checks=8))
    assert found.time == 2 * 8 * 3 * 500
    assert found.saving_most is None
    assert "16 times (2 steps)" in found.what
    assert "set_detect_anomaly" in found.recommendation
    assert found.edit.host.height == 48


def test_a_check_of_the_programs_own_is_no_anomaly_mode():
    assert find(backward(checks=1)) == []
    assert find(backward(checks=0)) == []


def allocating(per_step, steps=6, first=50, took=20_000):
    """Steps of 1 ms; ``per_step`` allocations in those after the first two, ``first`` in the first."""
    place = {"process": 0, "thread": 1}
    ranges = [
        {**place, "text": f"step {n}", "category": "step", "domain": "opscope.torch", "kind": "pushpop",
         "start": 10**6 * n, "end": 10**6 * n + 990_000}
        for n in range(steps)
    ]  # fmt: skip
    calls = [
        {**place, "name": "cudaMalloc" if n % 2 else "cudaFree_v3020", "correlation": 1_000 * step + n,
         "start": 10**6 * step + (took + 100) * n, "end": 10**6 * step + (took + 100) * n + took}
        for step in range(steps)
        for n in range(first if step == 0 else per_step if step > 1 else 0)
    ]  # fmt: skip
    calls.append({**place, "name": "cudaLaunchKernel", "correlation": 10**6, "start": 1, "end": 2})
    return Profile(Trace.of({"ranges": pl.DataFrame(ranges), "calls": pl.DataFrame(calls)}, {}))


def test_allocation_in_each_step_after_the_first():
    (found,) = find(allocating(4))
    # the step that the capture ends in counts as the others do
    assert found.time % 80_000 == 0
    assert found.time >= 3 * 80_000
    assert found.saving_most is None
    assert "cudaMalloc" in found.evidence
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in found.recommendation
    assert found.rows["count"].sum() * 20_000 == found.time


def test_allocation_in_the_first_step_is_warm_up():
    assert find(allocating(0)) == []
    assert find(allocating(1)) == []
    assert find(allocating(4, took=100)) == []


def test_with_nothing_to_look_at_it_cannot_be_told():
    answer = find(on_cpu([{"text": ADD, "start": 0, "end": 9}]))
    assert isinstance(answer, CannotTell)
    assert "environment variables are never in a profile" in answer.reason


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        # launches return long before their kernels end; nothing checks for NaN
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", True),
        ("kineto/ddp_memory_v100.json.gz", True),
        # memory is allocated 39 times in 8.5 s, and nothing marks steps
        ("kineto/alexnet_cuda_sync_a100.json.gz", False),
        ("nsys/fsdp_h100x2_2026.sqlite", True),
        # cudaMalloc and cudaFree 285 times, but nothing marks steps
        ("nsys/cudf_2020.sqlite", False),
        ("rocm/rocprofv1_gfx1201_llamacpp/results.csv", False),
        ("kineto/triton_example.json.gz", False),
    ],
)
def test_no_shared_trace_was_made_in_such_a_mode(shared, trace, told):
    found = find(traces.load(shared / trace))
    assert found == [] if told else isinstance(found, CannotTell)
