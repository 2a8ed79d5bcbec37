"""``--gpu``: devices get the name that a person gives, and only those that the trace does not name."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest

from opscope.core.perf.devices.unnamed import UNNAMED, UnknownDevice, name_devices
from opscope.profile import Profile
from tests import traces


def test_only_devices_without_a_name(trace_of):
    trace = trace_of(
        devices=[{"process": 0, "device": 0, "name": "Tesla V100-SXM2-16GB"},
                 {"process": 0, "device": 1, "name": None}],
        kernels=[{"process": 1, "device": 0, "start": 0, "end": 1, "name": "k"}],
        notes=[{"severity": "warning", "what": UNNAMED + "; give it", "how_many": 2},
               {"severity": "info", "what": "another", "how_many": 1}],
    )  # fmt: skip
    assert name_devices(trace, "H100 SXM") == 2
    assert trace["devices"].select("process", "device", "name").rows() == [
        (0, 0, "Tesla V100-SXM2-16GB"), (0, 1, "H100 SXM"), (1, 0, "H100 SXM"),
    ]  # fmt: skip
    assert trace["notes"]["what"].to_list() == ["another"]


def test_a_name_that_is_none(trace_of):
    with pytest.raises(UnknownDevice, match="'Voodoo 2'"):
        name_devices(trace_of(), "Voodoo 2")


def test_the_fsdp_trace_names_no_device(shared):
    path = shared / "nsys/fsdp_h100x2_2026.sqlite"
    before, after = traces.load(path), traces.load(path, gpu="H100 SXM")
    assert before.trace["devices"]["name"].null_count() == 2
    assert before.notes().filter(pl.col("what").str.starts_with(UNNAMED)).height == 1
    assert after.trace["devices"]["name"].to_list() == ["H100 SXM"] * 2
    assert after.notes().filter(pl.col("what").str.starts_with(UNNAMED)).is_empty()


CPU = "CPU avx512 8 cores 2.5 GHz 100 GB/s 32 MB"


def test_a_cpu_where_nothing_ran_on_a_gpu(trace_of):
    """The ops of a program without a GPU are held against the CPU that a person describes."""
    row = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward",
           "text": "aten::mm(f32[512,512], f32[512,512])", "start": 0, "end": 1_000_000}  # fmt: skip
    profile = Profile(trace_of(ranges=[row]))
    assert profile.device[0] is None
    profile = Profile(trace_of(ranges=[row]))
    assert name_devices(profile.trace, CPU) == 1
    found = profile.efficiency().row(0, named=True)
    assert found["bound"] == "vector"
    # 2·512³ FLOP on 8 × 2.5e9 × 64 FLOP/s
    assert found["efficiency"] == pytest.approx(2 * 512**3 / 1.28e12 / 1e-3, rel=1e-3)
    assert not found["incomplete"]


def test_a_gpu_where_nothing_ran_on_one(trace_of):
    """Nothing could take the name, so it is refused; what is told instead is what can be given."""
    row = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward",
           "text": "aten::mm(f32[512,512], f32[512,512])", "start": 0, "end": 1_000_000}  # fmt: skip
    profile = Profile(trace_of(ranges=[row]))
    with pytest.raises(UnknownDevice, match="nothing in the trace ran on one"):
        name_devices(profile.trace, "H100 SXM")
    _, why = profile.device
    example = re.search("--gpu '(.+)'", why)
    assert name_devices(profile.trace, example[1]) == 1
    assert Profile(profile.trace).device[0] is not None


def test_a_device_without_kernels_takes_the_name(trace_of):
    trace = trace_of(devices=[{"process": 0, "device": 0, "name": None}])
    assert name_devices(trace, "H100 SXM") == 1


def test_a_cpu_beside_kernels(trace_of):
    trace = trace_of(kernels=[{"process": 1, "device": 0, "start": 0, "end": 1, "name": "k"}])
    with pytest.raises(UnknownDevice, match="is a CPU"):
        name_devices(trace, CPU)


MEASURED = "CPU 2 cores f32 64 GFLOP/s f64 32 GFLOP/s 20 GB/s 32 MB of AMD EPYC"


def _on_a_cpu(trace_of, versions, size=512, duration=1_000_000):
    text = f"aten::mm(f32[{size},{size}], f32[{size},{size}])"
    row = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward",
           "text": text, "start": 0, "end": duration}  # fmt: skip
    return Profile(trace_of(ranges=[row], processes=[{"process": 0, "versions": versions}]))


def test_the_roofs_that_a_recording_carries(trace_of):
    """What ``opscope doctor --measure`` measured on the machine is what its CPU is held against."""
    profile = _on_a_cpu(trace_of, json.dumps({"cpu": "AMD EPYC", "cpu_roofs": MEASURED}))
    device, why = profile.device
    assert (device.name, why) == ("2 cores of AMD EPYC", None)
    assert (device.peak("f32", False), device.peak("f64", False)) == (64e9, 32e9)
    assert (device.bandwidth, device.cache()) == (20e9, 32 * 2**20)
    row = profile.efficiency().row(0, named=True)
    # 2·512³ FLOP in 1 ms are 268 GFLOP/s: four times what was measured, which is no fault of the model
    assert row["efficiency"] == pytest.approx(2 * 512**3 / 64e9 / 1e-3)
    assert (row["bound"], row["over_reason"]) == ("vector", "measured roof")


def test_a_recording_without_roofs_says_how_to_have_them(trace_of):
    device, why = _on_a_cpu(trace_of, json.dumps({"cpu": "AMD EPYC"})).device
    assert device is None
    assert "its CPU (AMD EPYC)" in why
    assert "opscope doctor --measure" in why


@pytest.mark.parametrize("roofs", ["CPU f32 1.2.3 GFLOP/s", "CPU of f32 64 GFLOP/s", "", "f32"])
def test_roofs_that_are_none_are_no_roofs(roofs, trace_of):
    device, why = _on_a_cpu(trace_of, json.dumps({"cpu_roofs": roofs})).device
    assert device is None
    assert why
