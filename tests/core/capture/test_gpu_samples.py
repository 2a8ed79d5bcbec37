"""GPUs are sampled by NVML: what it answers is in the samples, what it refuses is noted, once."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

from opscope.core.analysis.host.energy import FROM_POWER, NO_COUNTER, energy
from opscope.core.capture import cpu_samples
from opscope.core.capture.gpu_samples import QUANTITIES, GpuSamples
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.schema import GPU_ENERGY, GPU_POWER
from opscope.core.tables.trace import Trace, conform
from opscope.readers.recording.process_part import read_part

FILE = Path(__file__).parents[2] / "nvml_stand_in" / "pynvml.py"
VALUES = {
    "utilization": [[97, 41]],
    "memory": [5 << 30],
    "clock/1": [1410],
    "clock/2": [1215],
    "power": [312_000],
    "temperature": [71],
    "reasons": [0x04 | 0x01],
    "energy": [1_000_000, 1_250_000],
    "pcie/0": [4_000],
    "pcie/1": [9_000],
    "nvlink/138": [1_000, 3_000],
    "nvlink/139": [0, 1_000],
}
S = 1_000_000_000


@pytest.fixture
def nvml(monkeypatch):
    spec = importlib.util.spec_from_file_location("pynvml", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


@pytest.fixture
def notes():
    return []


def sampler(notes, **environ) -> GpuSamples:
    return GpuSamples(lambda severity, what: notes.append((severity, what)), environ)


def test_every_quantity_is_what_nvml_answers_in_the_unit_of_its_name(nvml, notes):
    nvml.play({"gpus": [{"uuid": "GPU-a", "values": VALUES}]})
    gpus = sampler(notes)
    (device, first), ((_, second),) = gpus.sample(S)[0], gpus.sample(2 * S)
    assert device == 0
    assert second == {
        "GPU utilization [%]": 97,
        "GPU memory traffic [%]": 41,
        "GPU memory used [bytes]": 5 << 30,
        "GPU clock [MHz]": 1410,
        "GPU memory clock [MHz]": 1215,
        "GPU power [W]": 312,
        "GPU temperature [C]": 71,
        "GPU throttled: power limit [fraction]": 1,
        "GPU throttled: hardware slowdown [fraction]": 0,
        "GPU throttled: sync boost [fraction]": 0,
        "GPU throttled: temperature (software) [fraction]": 0,
        "GPU throttled: temperature (hardware) [fraction]": 0,
        "GPU throttled: power brake [fraction]": 0,
        "GPU energy [J]": 1250,
        "GPU PCIe sent [bytes/s]": 4e6,
        "GPU PCIe received [bytes/s]": 9e6,
        "GPU NVLink sent [bytes/s]": 2_000 * 1024,
        "GPU NVLink received [bytes/s]": 1_000 * 1024,
    }
    assert "GPU NVLink sent [bytes/s]" not in first  # a rate needs two readings of its counter
    assert notes == []


@pytest.mark.parametrize("code", [3, 4, 13], ids=["not supported", "no permission", "no function"])
def test_what_a_gpu_refuses_is_left_out_with_nvmls_reason_and_the_rest_is_sampled(
    nvml, notes, code
):
    values = {**VALUES, "energy": [{"error": code}], "reasons": [{"error": code}]}
    nvml.play({"gpus": [{"uuid": "GPU-a", "values": values}]})
    gpus = sampler(notes)
    for second in range(1, 4):
        ((_, found),) = gpus.sample(second * S)
    reason = {3: "Not Supported", 4: "Insufficient Permissions", 13: "Function Not Found"}[code]
    assert GPU_ENERGY not in found
    assert found[GPU_POWER] == 312
    assert sorted(notes) == [
        ("info", f"GPU 0: no energy: {reason}"),
        ("info", f"GPU 0: no throttling reasons: {reason}"),
    ]


def test_a_link_that_answers_not_supported_is_noted_though_the_call_succeeds(nvml, notes):
    values = {name: value for name, value in VALUES.items() if not name.startswith("nvlink")}
    nvml.play({"gpus": [{"uuid": "GPU-a", "values": values}]})
    gpus = sampler(notes)
    gpus.sample(S)
    assert notes == [("info", "GPU 0: no NVLink traffic: Not Supported")]


def test_an_error_that_passes_costs_one_sample_and_no_note(nvml, notes):
    nvml.play({"gpus": [{"uuid": "a", "values": {**VALUES, "power": [{"error": 999}, 5_000]}}]})
    gpus = sampler(notes)
    assert GPU_POWER not in gpus.sample(S)[0][1]
    assert gpus.sample(2 * S)[0][1][GPU_POWER] == 5
    assert notes == []


def test_an_error_that_stays_is_given_up(nvml, notes):
    nvml.play({"gpus": [{"uuid": "a", "values": {**VALUES, "power": [{"error": 999}]}}]})
    gpus = sampler(notes)
    for second in range(1, 9):
        gpus.sample(second * S)
    assert notes == [("info", "GPU 0: no power: Unknown Error")]


def test_a_lost_gpu_is_told_and_the_others_are_sampled(nvml, notes):
    lost = {**VALUES, "memory": [5, {"error": 15}]}
    nvml.play({"gpus": [{"uuid": "a", "values": lost}, {"uuid": "b", "values": VALUES}]})
    gpus = sampler(notes)
    assert [device for device, _ in gpus.sample(S)] == [0, 1]
    gpus.sample(2 * S)
    assert [device for device, _ in gpus.sample(3 * S)] == [1]
    assert notes == [("warning", "GPU 0 is lost: GPU is lost")]


def test_a_process_samples_the_gpus_that_it_sees_by_their_numbers_there(nvml, notes):
    nvml.play(
        {"gpus": [{"uuid": f"GPU-{n}", "values": {**VALUES, "memory": [n]}} for n in range(4)]}
    )
    gpus = sampler(notes, CUDA_VISIBLE_DEVICES="2, GPU-3")
    found = {device: one["GPU memory used [bytes]"] for device, one in gpus.sample(S)}
    assert found == {0: 2, 1: 3}
    assert [one for one, _ in sampler(notes, LOCAL_RANK="1").sample(S)] == [1]
    assert not sampler(notes, CUDA_VISIBLE_DEVICES="")
    assert not sampler(notes, CUDA_VISIBLE_DEVICES="-1")


@pytest.mark.parametrize("environ", [{}, {"CUDA_VISIBLE_DEVICES": "MIG-1"}])
def test_a_mig_instance_has_its_own_memory_and_the_whole_gpus_power(nvml, notes, environ):
    gpu = {"uuid": "GPU-a", "values": VALUES, "mig": {"MIG-1": 0}, "mig_values": {"memory": [77]}}
    nvml.play({"gpus": [gpu]})
    ((_, found),) = sampler(notes, **environ).sample(S)
    assert found["GPU memory used [bytes]"] == 77
    assert found[GPU_POWER] == 312
    assert "GPU utilization [%]" not in found
    assert any("MIG instance" in what for _, what in notes)
    assert ("info", "GPU 0: no utilization: Not Supported") in notes


@pytest.mark.parametrize("code", [9, 12], ids=["no driver", "no library"])
def test_a_machine_without_a_driver_is_sampled_without_gpus(nvml, notes, code):
    nvml.play({"init": code, "gpus": []})
    assert not sampler(notes)


def test_gpus_are_asked_on_the_writers_thread_alone_and_their_samples_are_read(nvml, tmp_path):
    nvml.play({"gpus": [{"uuid": "a", "values": VALUES}, {"uuid": "b", "values": VALUES}]})
    recorder = Recorder(
        tmp_path, sampler=lambda one: cpu_samples.CpuSampler(1000, one.note, one.samples_begin)
    )
    recorder.start()
    recorder.new_thread()
    begun = threading.Event()
    for _ in range(600):
        if len(nvml._state["calls"]) >= len(VALUES):
            begun.set()
            break
        threading.Event().wait(0.05)
    assert begun.is_set()
    threading.Event().wait(0.3)  # on a busy machine the round that began may not be written yet
    writer = set(nvml.threads)
    recorder.stop()  # the last sample is taken by the thread that ends the recording
    assert threading.get_ident() not in writer
    samples = read_part(recorder.folder)["samples"]
    power = samples.filter(pl.col("name").cast(pl.String) == GPU_POWER)
    assert set(power["device"]) == {0, 1}
    assert set(power["value"]) == {312.0}
    of_process = samples.filter(pl.col("name").cast(pl.String) == "process memory [bytes]")
    assert of_process["device"].null_count() == len(of_process)


def sampled(*rows: tuple[int, str, float]) -> Trace:
    table = pl.DataFrame(
        [(0, 0, *row) for row in rows],
        schema=["process", "device", "time", "name", "value"],
        orient="row",
    )
    processes = pl.DataFrame({"process": [0], "rank": [3]})
    return Trace.of(
        {"samples": conform("samples", table), "processes": conform("processes", processes)}
    )


STEPS = pl.DataFrame(
    {"process": [0, 0, 0], "start": [0, S, 2 * S], "end": [S, 2 * S, 4 * S], "weight": [1, 1, 1]},
    schema_overrides={"process": pl.Int32},
)


def test_a_steps_energy_is_the_counters_rise_over_the_steps_in_the_sampled_time():
    row = energy(
        sampled((0, GPU_ENERGY, 100), (S, GPU_ENERGY, 400), (3 * S, GPU_ENERGY, 850)), STEPS
    ).row(0, named=True)
    assert (row["rank"], row["device"]) == (3, 0)
    assert (row["energy"], row["power"]) == (750, 250)
    assert row["counted_steps"] == 2
    assert row["step_energy"] == 300
    assert row["reason"] is None


def test_a_counter_that_begins_anew_does_not_make_energy_negative():
    rows = sampled((0, GPU_ENERGY, 100), (S, GPU_ENERGY, 200), (2 * S, GPU_ENERGY, 40))
    assert energy(rows, STEPS)["energy"][0] == 140


def test_without_a_counter_the_power_is_added_up_and_the_reason_says_so():
    rows = sampled((0, GPU_POWER, 100), (2 * S, GPU_POWER, 300))
    row = energy(rows, STEPS).row(0, named=True)
    assert row["energy"] == 400
    assert row["reason"] == FROM_POWER


def test_energy_that_cannot_be_known_is_null_with_a_reason():
    row = energy(sampled((0, GPU_POWER, 100)), STEPS).row(0, named=True)
    assert row["energy"] is row["step_energy"] is None
    assert row["reason"] == NO_COUNTER


def test_the_names_of_quantities_are_told_apart():
    assert len({name for name, *_ in QUANTITIES}) == len(QUANTITIES)
