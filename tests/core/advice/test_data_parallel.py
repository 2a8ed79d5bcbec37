"""torch.nn.DataParallel: one process with several devices, shown by its ranges."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.data_parallel import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import kernel, one, profile, ranged

MS = 1_000_000


def two_devices(text="DataParallel.forward", devices=2, ranges=True):
    kernels = [kernel(0, 40 * MS)]
    kernels += [kernel(50 * MS, 70 * MS, device=device) for device in range(1, devices)]
    kernels.append(kernel(70 * MS, 100 * MS))
    copy = {"process": 0, "device": 0, "context": 1, "stream": 7, "kind": "PtoP", "peer": 1}
    return profile(
        kernels=kernels,
        memops=[{**copy, "start": 40 * MS, "end": 50 * MS, "bytes": 1 << 20}],
        **({"ranges": [ranged(0, 70 * MS, text)]} if ranges else {}),
    )


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: one process, two devices", two_devices)


def test_the_bound_is_the_window_less_what_devices_compute_in_the_mean():
    found = one(DETECTOR, two_devices())
    # device 0 computes 70 ms, device 1 20 ms of 100 ms
    assert (found.time, found.saving_least, found.saving_most) == (10 * MS, 0, 55 * MS)
    assert "DistributedDataParallel(model" in found.recommendation
    assert "45.0 % of the time" in found.what


@pytest.mark.parametrize("text", ["DistributedDataParallel.forward", "aten::gather(f32[2])"])
def test_several_devices_alone_are_no_data_parallel(text):
    assert DETECTOR.find(two_devices(text)) == []


def test_on_one_device_it_copies_nothing():
    assert DETECTOR.find(two_devices(devices=1)) == []


def test_its_backward_nodes_show_it_too():
    text = "autograd::engine::evaluate_function: BroadcastBackward"
    assert "BroadcastBackward" in one(DETECTOR, two_devices(text)).evidence


def test_where_it_cannot_be_told():
    assert isinstance(DETECTOR.find(two_devices(ranges=False)), CannotTell)
    assert isinstance(DETECTOR.find(profile()), CannotTell)


def test_a_training_on_cpus_has_no_devices_to_copy_to():
    assert DETECTOR.find(profile(ranges=[ranged(0, 9, "DataParallel.forward")])) == []


@pytest.mark.parametrize(
    "name", ["ddp_memory_v100", "nccl_meta", "resnet50_nw0_step_span1.pt.trace"]
)
def test_real_traces_use_one_device_each(shared, name):
    assert DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz")) == []
