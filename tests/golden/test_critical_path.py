"""The critical path of real traces: it covers each, and is HTA's where that is right."""

from __future__ import annotations

import polars as pl
import pytest

from tests import traces

FILES = [
    "kineto/alexnet_cuda_sync_a100.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/qwen1.5_0.5b_h100.json.gz",
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "kineto/vllm_decode_cudagraph.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
    "onnxruntime/resnet_inference_gemmini.json",
    "xplane/jax_conv_mi300.xplane.pb",
]
DEVICE = ("kernel", "copy", "set", "communication")


@pytest.mark.parametrize("name", FILES)
def test_the_path_covers_the_trace_and_the_replay_is_exact(shared, name):
    profile = traces.load(shared / name)
    path = profile.critical_path()
    wall = profile.summary()["wall_time"][0]
    assert path["duration"].sum() == wall
    assert path["start"].to_list()[1:] == path["end"].to_list()[:-1]
    same = profile.what_if()
    assert same["wall_time"][0] == wall
    assert same["saving"].to_list() == [0] * len(same)
    gone = profile.what_if(host=0, launches=0, copies=0, communication=0)
    assert 0 <= gone["saving"][0] <= min(wall, gone["removed_time"][0])


def test_no_device_work_on_the_path_ran_at_the_same_time(shared):
    path = traces.load(shared / "nsys/fsdp_h100x2_2026.sqlite").critical_path()
    kernels = path.filter(pl.col("kind").is_in(DEVICE))
    assert len(kernels) > 100
    assert (kernels["start"][1:] >= kernels["end"][:-1]).all()


def test_the_forward_pass_of_alexnet_is_held_up_by_what_hta_says(shared):
    """HTA 0.5.0, annotation ``…|measure|forward]``, instance 1, in µs: 34 kernels, copies and sets of 3,712,
    one launch delay of 30, gaps of 50, which leave out one of 1 after a wait for an event."""
    profile = traces.load(shared / "kineto/alexnet_cuda_sync_a100.json.gz")
    ranges = profile.trace["ranges"].sort("start")
    text = ranges["text"].cast(str)
    low, high = ranges.filter(text.str.starts_with("[param|pytorch.model.alex_net|0|0|0|measure|forward"))[
        1
    ].select("start", "end").row(0)  # fmt: skip
    path = profile.critical_path().filter((pl.col("start") >= low) & (pl.col("end") <= high))
    sums = dict(path.group_by("kind").agg(pl.col("duration").sum()).iter_rows())
    worked = path.filter(pl.col("kind").is_in(DEVICE))
    assert len(worked) == 34
    assert worked["duration"].sum() == 3_712_000
    assert sums["launch"] == 30_000
    assert sums["gap"] + sums.get("unexplained", 0) == 51_000


def test_the_events_that_streams_wait_for_are_read(shared):
    syncs = traces.load(shared / "kineto/alexnet_cuda_sync_a100.json.gz").trace["syncs"]
    waits = syncs.filter(pl.col("kind") == "Stream Wait Event")
    assert waits.select("correlation", "record", "event_stream").row(0) == (5170, 5169, 7)
    assert waits["record"].null_count() == 0
