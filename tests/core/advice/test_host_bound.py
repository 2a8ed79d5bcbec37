"""The GPU waits for other work of the host: no time that another detector explains counts."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors import data_loader, launch_bound, sync_calls
from opscope.core.advice.detectors.host_bound import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.core.advice.pace import pace
from tests import traces
from tests.core.advice.timeline import MAIN, US, a_range, launching, op, steady, training, wait

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("a training on an A100 under the PyTorch profiler", "kineto/nccl_meta.json.gz")
MS = 1000 * US


def test_what_the_host_did_meanwhile_is_named():
    ranges = [
        *steady(2, 10 * MS),
        a_range("opscope.torch", "phase", "forward", 0, 20 * MS),
        op("aten::topk(f32[8]) @post.py:12", 3 * MS, 6 * MS),
    ]
    made = training(
        ranges, [(0, 5 * US, 10 * US, 3 * MS), (6 * MS, 6 * MS + US, 6 * MS + US, 20 * MS)]
    )
    (found,) = DETECTOR.find(made)
    assert found.time == found.saving_most == 3 * MS + US
    assert found.rows.select("op", "source", "time").row(0) == ("aten::topk", "post.py:12", 3 * MS)
    assert found.rows["time"].sum() == found.time
    assert "post.py:12 (aten::topk): 3.0 ms" in found.evidence
    assert found.edit is None


@pytest.mark.parametrize("more", [
    {"ranges": [wait(3 * MS, 6 * MS), wait(15 * MS, 18 * MS)]},
    {"calls": [("cudaStreamSynchronize", US, 3 * MS + US, MAIN)]},
])  # fmt: skip
def test_input_and_synchronising_calls_have_detectors_of_their_own(more):
    launches = [(0, 5 * US, 10 * US, 3 * MS), (6 * MS, 6 * MS + US, 6 * MS + US, 20 * MS)]
    made = training(
        steady(2, 10 * MS) + more.get("ranges", []), launches, calls=more.get("calls", [])
    )
    assert list(DETECTOR.find(made)) == []
    other = data_loader if "ranges" in more else sync_calls
    assert len(other.DETECTOR.find(made)) == 1


def test_late_launches_have_a_detector_of_their_own():
    made = training(steady(1, 4 * MS), launching(0, 4 * MS, 40 * US, 10 * US))
    assert list(DETECTOR.find(made)) == []
    assert len(launch_bound.DETECTOR.find(made)) == 1


def test_steps_of_warm_up_do_not_count():
    starts = [0, *(40 * MS + n * 10 * MS for n in range(9))]
    ranges = [a_range("opscope.step", "step", f"step {n}", at, ([*starts, 130 * MS])[n + 1])
              for n, at in enumerate(starts)]  # fmt: skip
    launches = [(1, 2, 3, 1000), (20 * MS, 20 * MS + 1, 20 * MS + 2, 40 * MS)]
    launches += [(at, at + 1, at + 2, at + 10 * MS) for at in starts[1:]]
    assert list(DETECTOR.find(training(ranges, launches))) == []


def test_it_cannot_tell_on_a_cpu():
    answer = DETECTOR.find(training(steady(3, 10)))
    assert isinstance(answer, CannotTell)
    assert "the CPU is the device" in answer.reason


@pytest.mark.parametrize(("name", "found", "why"), [
    ("nccl_meta.json.gz", 0.386, "views, slices and Python between the backbone and the loss, gaps of 5 ms"),
    ("sampled_rank0.json.gz", 0.29, "an optimizer (Shampoo) that decides on the host what to launch"),
    ("sampled_rank1.json.gz", 0.267, "the other rank of the same job"),
    ("ddp_rank3of8_a100_stacks.json.gz", 0.064, "7 gaps above a millisecond, and many of half a millisecond"),
    ("resnet50_nw4_step_span1.pt.trace.json.gz", 0.057, "17 ms in 7 gaps around the optimizer, and many short"),
    ("resnet50_nw0_step_span1.pt.trace.json.gz", 0, "what waits here waits for input"),
    ("ddp_memory_v100.json.gz", 0, "what waits here waits for launches; 4.5 % remain"),
    ("vision_transformer_rank0.json.gz", 0, "its GPU waits for other streams"),
    ("qwen1.5_0.5b_h100.json.gz", 0, "its GPU is busy"),
])  # fmt: skip
def test_real_traces(shared, name, found, why):
    loaded = traces.load(shared / "kineto" / name)
    answer = DETECTOR.find(loaded)
    assert len(answer) == (1 if found else 0), why
    if found:
        assert answer[0].time / pace(loaded).whole == pytest.approx(found, abs=0.002), why
        # kernels of several devices, and parts of a nanosecond, make no row longer than the whole
        assert int(answer[0].rows["time"].sum()) <= answer[0].time
