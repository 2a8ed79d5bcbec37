"""GPUs that run kernels for less than half of the time, each with what it waits for."""

from __future__ import annotations

import re

import pytest

from opscope.core.advice.detectors.underutilized_gpu import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.timeline import US, launching, op, steady, training, wait

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("a training on an A100 under the PyTorch profiler", "kineto/nccl_meta.json.gz")
MS = 1000 * US


@pytest.mark.parametrize(("took", "fires"), [(490 * US, True), (500 * US, False), (MS, False)])
def test_below_half_of_the_time(took, fires):
    found = DETECTOR.find(training(steady(2, 5 * MS), launching(0, 10 * MS, MS, took)))
    assert len(found) == int(fires)
    if fires:
        assert found[0].time == found[0].saving_most == 10 * MS - 10 * took
        assert "49.0 % utilisation" in found[0].what


def test_what_it_waits_for_adds_up_and_comes_first_in_the_advice():
    waits = [wait(n * MS + 600 * US, (n + 1) * MS) for n in range(10)]
    made = training(steady(2, 5 * MS) + waits, launching(0, 10 * MS, MS, 400 * US))
    (found,) = DETECTOR.find(made)
    assert "data_loader" in found.recommendation
    assert "it waits for input (see data_loader): 3.6 ms" in found.evidence
    assert found.rows["time"].sum() == int(made.idle_steps()["idle_time"].sum()) == found.time


def test_without_steps_low_use_may_be_start_up():
    answer = DETECTOR.find(training([op("aten::relu()", 0, 9)], launching(0, 10 * MS, MS, 10 * US)))
    assert isinstance(answer, CannotTell)
    assert "the profile has no steps" in answer.reason
    high = training([op("aten::relu()", 0, 9)], launching(0, 10 * MS, MS, 900 * US))
    assert list(DETECTOR.find(high)) == []


def test_it_cannot_tell_on_a_cpu():
    assert isinstance(DETECTOR.find(training(steady(3, 10))), CannotTell)


@pytest.mark.parametrize(("name", "used", "why"), [
    ("nccl_meta.json.gz", 23.3, "small kernels under a profiler"),
    ("sampled_rank0.json.gz", 44.5, "an optimizer on the host, and other streams"),
    ("vision_transformer_rank0.json.gz", 32.2, "its kernels wait for other streams"),
    ("timesformer_h100.json.gz", 40.5, "the step ends 223 ms after its last kernel"),
])  # fmt: skip
def test_real_traces_with_one(shared, name, used, why):
    loaded = traces.load(shared / "kineto" / name)
    (found,) = DETECTOR.find(loaded)
    assert f"{used} % utilisation" in found.what, why
    use = loaded.device_use().row(0, named=True)
    assert found.time == use["window"] - use["kernel_busy"]


@pytest.mark.parametrize(("name", "why"), [
    ("nsys/fsdp_h100x2_2026.sqlite", "two GPUs, 90.3 % and 88.1 % of the capture"),
    ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "55.5 %"),
    ("kineto/ddp_memory_v100.json.gz", "56.3 %"),
    ("kineto/qwen1.5_0.5b_h100.json.gz", "91.5 %"),
])  # fmt: skip
def test_real_traces_without(shared, name, why):
    assert list(DETECTOR.find(traces.load(shared / name))) == [], why


def test_real_traces_that_leave_it_open(shared):
    """DLProf's own sample: 0.03 % of 2.3 s, most of it start-up, without steps."""
    answer = DETECTOR.find(traces.load(shared / "dlprof/nsys_profile.sqlite"))
    assert isinstance(answer, CannotTell)
    assert "no steps" in answer.reason


def test_it_points_to_no_detector_that_found_nothing():
    waits = [wait(n * MS + 600 * US, (n + 1) * MS) for n in range(10)]
    made = training(steady(2, 5 * MS) + waits, launching(0, 10 * MS, MS, 400 * US))
    found = made.advice(["underutilized_gpu", "data_loader"]).filter(detector="underutilized_gpu")
    both = found["evidence"][0], found["recommendation"][0]
    assert all("(see data_loader)" in text for text in both)
    alone = made.advice(["underutilized_gpu"])
    assert "it waits for input: 3.6 ms" in alone["evidence"][0]
    assert "data_loader" not in alone["recommendation"][0]
    told = made.advice()
    outcome = dict(told.select("detector", "outcome").iter_rows())
    for text in told["evidence"].drop_nulls():
        for name in re.findall(r"\(see (\w+)\)", text):
            assert outcome[name] == "found", text


def test_a_device_that_waits_for_other_streams_is_not_told_to_overlap_what_does_not_run(shared):
    (row,) = traces.load(shared / "kineto" / "vision_transformer_rank0.json.gz").advice(
        ["underutilized_gpu"]
    ).rows(named=True)  # fmt: skip
    assert "queued work that waits for other streams" in row["evidence"]
    assert "Overlap" not in row["recommendation"]
    assert "--reports idle,queue,overlap" in row["recommendation"]


def test_an_npu_is_not_told_to_use_what_gpus_of_nvidia_have(shared):
    (row,) = traces.load(shared / "mindspore" / "msprof_device0").advice(
        ["underutilized_gpu"]
    ).rows(named=True)  # fmt: skip
    assert "Record the launches too" in row["recommendation"]
    assert "msprof" in row["recommendation"]
    for text in (row["finding"], row["recommendation"]):
        assert not re.search(r"MIG|MPS|nsys|GPU", text)
