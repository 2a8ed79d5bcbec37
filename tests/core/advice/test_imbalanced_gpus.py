"""Devices that compute for different times: against each other, not against what they wait in collectives."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.imbalanced_gpus import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import ALL_REDUCE, kernel, one, profile


def stages(*computing, window=1000):
    """One device a rank: it computes so long (ns), and is in a collective for the rest of the window."""
    kernels = []
    for rank, time in enumerate(computing):
        kernels.append(kernel(0, time, process=rank, device=rank))
        if time < window:
            kernels.append(kernel(time, window, ALL_REDUCE, process=rank, device=rank, stream=9))
    return profile(
        kernels=kernels,
        processes=[{"process": rank, "rank": rank} for rank in range(len(computing))],
    )


def pipeline():
    return stages(9_000_000, 3_000_000, 3_000_000, 3_000_000, window=10_000_000)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: four devices, of which one computes three times as long", pipeline)


def test_the_busiest_device_is_named_though_all_are_busy_all_the_time():
    found = one(DETECTOR, pipeline())
    # the mean is 4.5 ms
    assert (found.time, found.saving_least, found.saving_most) == (4_500_000, 0, 4_500_000)
    assert "device 0 of process 0 computes for 9.0 ms" in found.what.lower()
    assert found.rows["time"].to_list() == [9_000_000, 3_000_000, 3_000_000, 3_000_000]


@pytest.mark.parametrize("computing", [(900, 850), (90, 60), (500,)])
def test_devices_that_compute_alike_or_little_are_nothing_to_change(computing):
    assert DETECTOR.find(stages(*computing)) == [] or len(computing) == 1


def test_two_devices_of_one_process_are_compared():
    found = one(DETECTOR, profile(kernels=[kernel(0, 1000), kernel(0, 200, device=1)]))
    assert found.time == 400
    rows, factors = found.edit.kernels
    assert (rows.tolist(), factors.tolist()) == ([0], [0.6])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (stages(500), "one device of a job with collectives"),
        (profile(kernels=[kernel(0, 900), kernel(0, 100, process=1)]), "that they are one job"),
        (profile(kernels=[kernel(0, 900, ALL_REDUCE), kernel(0, 100, ALL_REDUCE, device=1)]),
         "no computation"),
        (profile(), "no work of a device"),
    ],
)  # fmt: skip
def test_where_it_cannot_be_told(made, why):
    answer = DETECTOR.find(made)
    assert isinstance(answer, CannotTell)
    assert why in answer.reason


def test_fsdp_on_two_devices_is_balanced(shared):
    """253.7 and 256.1 ms of computation in 299.9 ms: within 1 %. What differs is the time in collectives, 17.2
    and 8.2 ms, of which the longer is waiting: by busy time alone the idler device would be called busier."""
    loaded = traces.load(shared / "nsys" / "fsdp_h100x2_2026.sqlite")
    assert DETECTOR.find(loaded) == []
    busy = dict(loaded.device_use().select("device", "kernel_busy").rows())
    assert busy[0] > busy[1]
    computing = dict(loaded.communication().select("process", "computation_time").rows())
    assert computing[0] < computing[1]
    assert max(computing.values()) - min(computing.values()) < 0.01 * max(computing.values())


def test_two_ranks_of_128_compute_unlike_but_for_little_of_the_time(shared):
    """210 and 272 ms of 1.24 s: 13 % above the mean, 2.5 % of the window."""
    names = [shared / "kineto" / f"sampled_rank{rank}.json.gz" for rank in range(2)]
    assert DETECTOR.find(traces.load(names)) == []


def test_one_rank_cannot_tell(shared):
    answer = DETECTOR.find(traces.load(shared / "kineto" / "ddp_memory_v100.json.gz"))
    assert isinstance(answer, CannotTell)
    assert "of 2 ranks" in answer.reason
