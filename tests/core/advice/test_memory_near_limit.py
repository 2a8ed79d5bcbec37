"""Memory near the limit: against the device's size, with what the allocator's calls cost, or not told."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.memory_near_limit import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import kernel, one, profile, step

GB = 10**9
MS = 1_000_000
#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "a server of vLLM on an MI300X as it captures its CUDA graphs",
    "kineto/vllm_decode_cudagraph_capture.json.gz",
)


def used(peak, reserved=None, size=16 * GB, calls=()):
    held = {"process": 0, "device": 0, "thread": 1, "reserved": reserved}
    return profile(
        allocations=[
            {**held, "time": 5, "address": 1, "bytes": peak, "total": peak},
            {**held, "time": 9, "address": 1, "bytes": -peak, "total": 0},
        ],
        kernels=[kernel(0, 400 * MS)],
        devices=[{"process": 0, "device": 0, "memory": size}],
        ranges=[step(number, 100 * number * MS, 100 * (number + 1) * MS) for number in range(4)],
        **({"calls": list(calls)} if calls else {}),
    )


def call(name, start, end):
    return {"process": 0, "thread": 1, "name": name, "start": start * MS, "end": end * MS,
            "correlation": start}  # fmt: skip


FLUSHES = [
    call(name, at, at + 2)
    for at in (10, 110, 210, 310)
    for at, name in ((at, "cudaFree"), (at + 5, "cudaMalloc"))
]


def test_a_peak_above_nine_tenths_is_found_and_no_time_is_claimed():
    found = one(DETECTOR, used(15 * GB))
    assert (found.time, found.saving_least, found.saving_most) == (0, 0, 0)
    assert "15.00 GB of its 16.00 GB" in found.what
    assert "93.8 %" in found.what
    assert (found.confidence, found.edit) == ("medium", None)


def test_flushes_in_later_steps_cost_their_calls():
    found = one(DETECTOR, used(15 * GB, calls=FLUSHES))
    # those of the first step are its warm-up's
    assert found.time == found.saving_most == 3 * 2 * 2 * MS
    assert found.confidence == "high"
    assert found.edit.launches[0].tolist() == [2, 3, 4, 5, 6, 7]
    assert set(found.edit.launches[1]) == {0}


def test_what_is_only_reserved_is_less_sure():
    assert one(DETECTOR, used(8 * GB, reserved=15 * GB)).confidence == "low"


@pytest.mark.parametrize("made", [used(14 * GB), used(14 * GB, reserved=14 * GB, calls=FLUSHES)])
def test_a_peak_below_is_nothing_to_change(made):
    assert DETECTOR.find(made) == []


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (profile(kernels=[kernel(0, 9)]), "was recorded: capture"),
        (used(15 * GB, size=None), "size of the device's memory"),
        (profile(ranges=[step(0, 0, 9)]), "on the CPU"),
    ],
)
def test_where_it_cannot_be_told(made, why):
    answer = DETECTOR.find(made)
    assert isinstance(answer, CannotTell)
    assert why in answer.reason


def test_vllm_takes_what_it_is_told_to(shared):
    """191.6 of 206.1 GB: its cache of keys and values is sized to fill the device."""
    loaded = traces.load(shared / "kineto" / "vllm_decode_cudagraph_capture.json.gz")
    found = one(DETECTOR, loaded)
    (row,) = loaded.memory().rows(named=True)
    assert f"{row['peak_memory'] / 1e9:.2f} GB" in found.what
    assert "gpu_memory_utilization" in found.recommendation


@pytest.mark.parametrize(
    "name", ["ddp_memory_v100", "qwen1.5_0.5b_h100", "resnet50_nw0_step_span1.pt.trace"]
)
def test_real_traces_with_room(shared, name):
    """6.6 of 34.1 GB in use, 12.8 reserved; 2.1 and 2.6 of 80; 2.8 of 16."""
    assert DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz")) == []
