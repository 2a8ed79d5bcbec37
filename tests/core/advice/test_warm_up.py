"""Steps of warm-up within the range: found where the first steps stand out, with what they cost."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.warm_up import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.timeline import US, a_range, launching, op, step, training

NW4 = "kineto/resnet50_nw4_step_span1.pt.trace.json.gz"
#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("ResNet-50 of the PyTorch profiler's tutorial, num_workers=4", NW4)
MS = 1000 * US


def steps(*lengths, more=()):
    at, ranges = 0, [op("aten::relu(f32[8])", 1, 2)]
    for number, length in enumerate(lengths):
        ranges.append(step(number, at, at + length))
        at += length
    return training(ranges + list(more), launching(0, at, MS, 10 * US))


def test_what_the_first_steps_take_above_the_median_of_the_others():
    (found,) = DETECTOR.find(steps(90 * MS, 40 * MS, *[10 * MS] * 8))
    assert found.time == found.saving_most == 80 * MS + 30 * MS
    assert "2 steps of the range are warm-up: 110.0 ms" in found.what
    assert found.rows.select("step", "time").rows() == [(0, 80 * MS), (1, 30 * MS)]
    assert "skip_first=2" in found.recommendation
    assert found.confidence == "medium"


def test_compilation_is_named_and_a_cache_advised():
    compiling = a_range("opscope.torch", "phase", "compile train", 5 * MS, 75 * MS)
    (found,) = DETECTOR.find(steps(90 * MS, *[10 * MS] * 8, more=[compiling]))
    assert "70.0 ms of it compiling" in found.evidence
    assert found.confidence == "high"
    assert "TORCHINDUCTOR_CACHE_DIR" in found.recommendation


@pytest.mark.parametrize("lengths", [
    [10 * MS] * 8, [10 * MS] * 4 + [90 * MS] + [10 * MS] * 3, [11 * MS] + [10 * MS] * 7,
])  # fmt: skip
def test_even_steps_a_slow_one_later_and_a_slightly_longer_first_are_no_warm_up(lengths):
    assert list(DETECTOR.find(steps(*lengths))) == []


def test_of_few_steps_none_is_judged():
    answer = DETECTOR.find(steps(90 * MS, 10 * MS))
    assert isinstance(answer, CannotTell)
    assert "there are 2 steps" in answer.reason
    assert isinstance(DETECTOR.find(training([op("aten::relu()", 0, 9)])), CannotTell)


def test_real_traces(shared):
    """nw4's first step takes 181.6 ms, the median of the others is 126.3; nw0's six are within 10 %."""
    (found,) = DETECTOR.find(traces.load(shared / NW4))
    assert found.time == 181_565_000 - 126_272_000
    for name in ("resnet50_nw0_step_span1.pt", "ddp_rank3of8_a100_stacks", "ddp_memory_v100"):
        path = shared / f"kineto/{name}{'.trace' if '.pt' in name else ''}.json.gz"
        assert list(DETECTOR.find(traces.load(path))) == []
