"""Reserved and unused memory: what proves that it is in pieces; calls of the driver repeated in steps."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.fragmentation import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import kernel, one, profile, ranged, step
from tests.core.advice.test_memory_near_limit import FLUSHES

GB = 1 << 30
#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "a training on two V100, of which one was profiled",
    "kineto/ddp_memory_v100.json.gz",
)


def events(*rows):
    """Rows of (bytes, total, reserved)."""
    return profile(
        allocations=[
            {"process": 0, "device": 0, "thread": 1, "time": time, "address": time, "bytes": size,
             "total": total, "reserved": reserved}
            for time, (size, total, reserved) in enumerate(rows)
        ],
        kernels=[kernel(0, 100)],
    )  # fmt: skip


def test_growth_beside_enough_unused_bytes_proves_pieces():
    made = events((4 * GB, 4 * GB, 4 * GB), (-2 * GB, 2 * GB, 4 * GB), (1 * GB, 3 * GB, 5 * GB))
    found = one(DETECTOR, made)
    assert found.confidence == "high"
    assert "1 times it reserved more (1.07 GB in all)" in found.evidence
    assert (found.time, found.saving_most) == (0, 0)


def test_much_unused_at_the_peak_alone_is_less_sure():
    found = one(DETECTOR, events((1 * GB, 1 * GB, 6 * GB), (2 * GB, 3 * GB, 6 * GB)))
    assert found.confidence == "low"
    assert "earlier peak" in found.evidence
    assert "50.0 %" in found.what


@pytest.mark.parametrize(
    "rows",
    [
        [(4 * GB, 4 * GB, 4 * GB), (2 * GB, 6 * GB, 6 * GB)],
        # small blocks have segments of their own
        [(4 * GB, 4 * GB, 4 * GB), (-GB, 3 * GB, 4 * GB), (512, 3 * GB + 512, 4 * GB + (2 << 20)),
         (GB, 4 * GB, 4 * GB + (2 << 20))],
        [(GB // 4, GB // 4, GB)],
    ],
)  # fmt: skip
def test_a_reserve_that_is_in_use_or_small_is_nothing_to_change(rows):
    assert DETECTOR.find(events(*rows)) == []


def test_calls_of_the_driver_in_later_steps_cost_their_time():
    ms = 1_000_000
    steps = [step(number, 100 * number * ms, 100 * (number + 1) * ms) for number in range(4)]
    found = one(DETECTOR, profile(calls=FLUSHES, ranges=steps))
    assert found.time == found.saving_most == 12 * ms
    assert "cudaMalloc: 3 calls in 3 steps" in found.evidence
    assert found.rows["time"].sum() == 12 * ms
    assert len(found.edit.launches[0]) == 6
    once = profile(calls=FLUSHES[:4], ranges=steps)
    assert isinstance(DETECTOR.find(once), CannotTell), "in one later step they are not repeated"


def test_without_the_reserve_it_cannot_tell():
    answer = DETECTOR.find(profile(ranges=[ranged(0, 9, "aten::mm(f32[8,8], f32[8,8])")]))
    assert isinstance(answer, CannotTell)
    assert "profile_memory=True" in answer.reason


def test_a_reserve_twice_the_peak_is_told_as_unsure(shared):
    """12.78 GB are reserved throughout, 6.63 in use at the peak: it may stem from before the trace."""
    loaded = traces.load(shared / "kineto" / "ddp_memory_v100.json.gz")
    found = one(DETECTOR, loaded)
    assert found.confidence == "low"
    assert "expandable_segments:True" in found.recommendation
    assert "6.15 GB (48.1 %)" in found.what


@pytest.mark.parametrize("name", ["qwen1.5_0.5b_h100", "timesformer_h100"])
def test_real_traces_that_use_what_they_reserve(shared, name):
    """20.6 % and 2.1 % of the reserve are not in use at the peak; it never grew beside enough unused"
    " bytes."""
    assert DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz")) == []


def test_allocations_outside_steps_are_no_finding(shared):
    """AlexNet's first and only batch allocates for 8.5 s; that is start-up, and no step is marked."""
    answer = DETECTOR.find(traces.load(shared / "kineto" / "alexnet_cuda_sync_a100.json.gz"))
    assert isinstance(answer, CannotTell)
