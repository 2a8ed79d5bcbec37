"""How a run's counters are measured: the rule, and what speaks against each way."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.backends.cupti_counters import ways
from opscope.backends.cupti_counters.sampling import on_clock
from opscope.backends.machine import Machine
from opscope.core.counter_permission import REMEDY


def machine(environ=None, gpu="nvidia") -> Machine:
    return Machine(environ or {}, Path("/nonexistent"), gpu=gpu)


def names(environ=None, by: str = "", **what) -> list[str]:
    return [way.by for way in ways.offered(machine(environ, **what), {ways.BY: by})]


def test_kernels_by_themselves_come_before_devices_by_time_and_cupti_before_pytorch(monkeypatch):
    monkeypatch.setattr(ways, "forbidden", lambda: False)
    assert names() == ["ranges", "torch", "sampling"]
    assert names(by="sampling") == ["sampling"]


@pytest.mark.parametrize(
    ("environ", "gpu", "why"),
    [
        ({"NV_COMPUTE_PROFILER_PERFWORKS_DIR": "/"}, "nvidia", ways.UNDER_NCU),
        ({"NSYS_PROFILING_SESSION_ID": "1"}, "nvidia", "Nsight Systems runs this process"),
        ({}, "amd", "rocprofv3"),
        ({}, None, "no GPU is visible"),
    ],
)
def test_where_nothing_can_measure_no_way_is_offered(environ, gpu, why):
    assert names(environ, gpu=gpu) == []
    assert why in ways.refusal(machine(environ, gpu))


def test_a_driver_that_forbids_counters_forbids_every_way(monkeypatch):
    monkeypatch.setattr(ways, "forbidden", lambda: True)
    assert names() == []
    assert ways.refusal(machine()) == REMEDY
    monkeypatch.setattr(ways, "forbidden", lambda: None)  # the machine does not tell
    assert ways.refusal(machine()) is None


def test_the_way_that_measured_is_told_with_why_it_is_not_an_earlier_one():
    better = [{"backend": "counters-ranges", "why": "no call"}, {"backend": "nsys", "why": "x"}]
    told = [{"backend": "counters-torch", "reason": "anything", "better": better}]
    assert ways.told(told) == ("PyTorch's profiler", "CUPTI's range profiling: no call")
    assert ways.told([{"backend": "counters-ranges", "reason": "so", "better": []}]) == (
        "CUPTI's range profiling",
        "so",
    )
    assert ways.told([{"backend": "recorder", "reason": "so", "better": better}]) is None


def test_times_of_samples_follow_the_pairs_of_clocks_to_the_nanosecond():
    base = 1_790_000_000_000_000_000  # more than a float holds
    pairs = [(base, 1_000, 5), (base + 1_000_000, 1_001_010, 5)]
    times = [base, base + 500_000, base + 1_000_000, base + 2_000_000]
    assert on_clock(times, pairs) == [1_000, 501_005, 1_001_010, 2_001_010]
    assert on_clock([], pairs) == []
