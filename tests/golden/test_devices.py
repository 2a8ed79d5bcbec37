"""The use of devices on real traces, beside what Kineto, the TensorBoard plug-in and TraceLens print of them.

The plug-in is torch-tb-profiler 0.4.3; its figures were recorded with pandas 2.1.4. Where it differs:

- its mean occupancy is of figures that Kineto rounded to whole per cent, and Kineto writes 0 % for kernels
  with more than 48 KiB of shared memory (it asks the calculator without the opt-in that they ran with);
- timesformer: its last step is the annotation that Kineto repeats on the GPU, which ends before the step;
- vision_transformer: it does not find which kernels the last step launched, and leaves them out;
- Tensor Cores: it knows a list of names, which lacks kernels that say ``tf32`` or ``tensorop``.
"""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from contextlib import closing
from functools import cache

import polars as pl
import pytest

from opscope.core.perf.devices.occupancy import MOST_THREADS, WARP, multiprocessor
from tests import traces

PLUGIN = {  # utilization, SM efficiency, mean occupancy in per cent, Tensor Core share of kernel time
    "resnet50_nw0_step_span1.pt.trace": (0.5551408517, 0.5467904107, 49.128004909, 0),
    "resnet50_nw4_step_span1.pt.trace": (0.7027034689, 0.6922497791, 48.909890934, 0),
    "ddp_memory_v100": (0.5626663644, 0.3411788323, 31.952633253, 0),
    "ddp_rank3of8_a100_stacks": (0.7938091584, 0.5920521304, None, 0.1495278786),
    "nccl_meta": (0.2326278028, 0.1686884299, None, None),
    "qwen1.5_0.5b_h100": (0.9147574966, 0.8976057998, None, None),
    "sampled_rank0": (0.4448572652, None, None, 0.0903302287),
    "sampled_rank1": (0.4646368904, None, None, 0.0862576917),
}
#: Of the plug-in's kernel view, the first kernels: calls, µs in all, longest, shortest, blocks per SM,
#: occupancy in per cent.
KERNELS = {
    "resnet50_nw0_step_span1.pt.trace": [
        (162, 80756, 1017, 323, 42.25, 29.97),
        (156, 66472, 745, 345, 9.78, 38.0),
        (264, 59642, 915, 45, 4.34, 67.98),
        (3090, 39814, 378, 1, 641.54, 92.32),
        (90, 36957, 748, 347, 12.34, 50.0),
        (294, 27298, 377, 13, 653.06, 100.0),
        (150, 27060, 452, 53, 3.12, 64.06),
        (60, 25782, 729, 352, 3.9, 42.09),
    ],
    "resnet50_nw4_step_span1.pt.trace": [
        (180, 86855, 1023, 323, 45.33, 30.04),
        (264, 59568, 923, 45, 4.33, 67.92),
        (90, 43471, 742, 363, 8.18, 38.0),
        (3090, 39753, 376, 1, 641.51, 92.35),
        (90, 37016, 735, 346, 12.39, 50.0),
        (72, 35106, 822, 350, 3.83, 41.64),
        (294, 27280, 377, 13, 653.26, 100.0),
        (150, 27084, 454, 53, 3.12, 64.02),
    ],
}


@cache
def loaded(path):
    return traces.load(path)


def named(shared, name: str):
    return loaded(shared / "kineto" / f"{name}.json.gz")


@pytest.mark.parametrize("name", PLUGIN)
def test_figures_are_those_of_the_plug_in(shared, name):
    utilization, efficiency, occupancy, tensor_core = PLUGIN[name]
    row = named(shared, name).device_use().row(0, named=True)
    if utilization is not None:
        assert row["gpu_utilization"] == pytest.approx(
            utilization, abs=3e-7
        )  # the plug-in computes in fractions of µs
    if efficiency is not None:
        assert row["sm_efficiency"] == pytest.approx(efficiency, abs=2e-7)
    if occupancy is not None:
        assert row["achieved_occupancy"] * 100 == pytest.approx(occupancy, abs=0.1)
    if tensor_core is not None:
        assert row["tensor_core_share"] == pytest.approx(tensor_core, abs=1e-8)


def test_where_the_plug_ins_window_is_wrong_its_own_window_gives_its_figure(shared):
    profile = named(shared, "vision_transformer_rank0")
    kernels = profile.kernels()
    launched = kernels.filter(pl.col("call_start").is_not_null())
    steps = profile.trace["ranges"].filter(pl.col("category") == "step")
    # the last step's kernels, which the host does not wait for, end 158 ms after it
    late = launched["end"].max() - steps["end"].max()
    assert late == 158_246_000
    row = profile.device_use().row(0, named=True)
    assert row["window"] == steps["end"].max() - steps["start"].min() + late
    host = steps["end"].max() - steps["start"].min()
    inside = kernels.with_columns(pl.col("end").clip(upper_bound=steps["end"].max())).filter(
        pl.col("end") > pl.col("start")
    )
    edge, busy = 0, 0
    for start, end in inside.sort("start").select("start", "end").rows():
        busy += max(0, end - max(edge, start))
        edge = max(edge, end)
    assert busy / host == pytest.approx(0.3186210440, abs=1e-8)  # the plug-in's


@pytest.mark.parametrize(
    ("name", "large"),
    [
        ("resnet50_nw0_step_span1.pt.trace", 0),
        ("resnet50_nw4_step_span1.pt.trace", 0),
        ("ddp_memory_v100", 0),
        ("ddp_rank3of8_a100_stacks", 1224),
        ("nccl_meta", None),
        ("qwen1.5_0.5b_h100", None),
        ("timesformer_h100", None),
        ("vision_transformer_rank0", None),
        ("alexnet_cuda_sync_a100", 6),
        ("triton_example", 0),
    ],
)
def test_achieved_occupancy_is_kinetos_of_every_kernel(shared, name, large):
    """Equal after rounding to whole per cent, except for kernels with more than 48 KiB of shared memory."""
    profile = named(shared, name)
    theirs = profile.trace["kernels"]["attrs"].str.json_path_match("$.occupancy").cast(pl.Float64)
    rows = profile.kernels().select("grid", "block", "registers", "shared_memory")
    ours = profile.kernel_launches().select(
        "grid", "block", "registers", "shared_memory", "achieved_occupancy"
    )
    found = rows.with_columns(theirs.alias("theirs")).join(
        ours.unique(["grid", "block", "registers", "shared_memory"]),
        on=["grid", "block", "registers", "shared_memory"],
        how="left",
        maintain_order="left",
    )
    assert found["achieved_occupancy"].null_count() == 0
    off = found.filter((pl.col("achieved_occupancy") * 100 - pl.col("theirs")).abs() > 0.5 + 1e-6)
    assert (off["shared_memory"] > 48 * 1024).all()
    assert (off["theirs"] == 0).all()
    if large is not None:
        assert len(off) == large


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_those_of_the_plug_ins_kernel_view(shared, name):
    frame = named(shared, name).kernel_occupancy()
    assert frame["calls"].sum() == {"nw0": 8772, "nw4": 8868}[name[9:12]]
    columns = ("calls", "total", "max", "min", "blocks_per_sm", "achieved_occupancy")
    for ours, theirs in zip(frame.select(columns).head(8).rows(), KERNELS[name], strict=True):
        calls, total, longest, shortest, per_sm, occupancy = theirs
        assert ours[0] == calls
        assert [each // 1000 for each in ours[1:4]] == [total, longest, shortest]
        assert ours[4] == pytest.approx(per_sm, abs=0.006)
        assert ours[5] * 100 == pytest.approx(occupancy, abs=0.51)


def test_short_kernels_are_as_many_as_tracelens_counts(shared):
    with (shared / "kineto" / "qwen_tracelens" / "short_kernel_histogram.csv").open() as lines:
        theirs = sum(int(row["count"]) for row in csv.DictReader(lines))
    profile = named(shared, "qwen1.5_0.5b_h100")
    assert profile.short_kernels()["short"].sum() == theirs == 152
    below = profile.kernel_lengths().filter(pl.col("below") <= 10_000)
    assert below["calls"].sum() == theirs
    summary = shared / "kineto" / "qwen_tracelens" / "short_kernels_summary.csv"
    with summary.open() as lines:
        of_ops = sum(int(float(row["Short Kernel count"])) for row in csv.DictReader(lines))
    kernels = profile.kernels()
    with_op = kernels.filter((pl.col("duration") < 10_000) & pl.col("op").is_not_null())
    assert len(with_op) == of_ops


EVERY = [
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/nccl_meta.json.gz",
    "kineto/vision_transformer_rank0.json.gz",
    "kineto/vllm_decode_cudagraph.json.gz",
    "nsys/cudf_2020.sqlite",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nsys_more/fuser_h200_test_matmul.sqlite",
    "dlprof/dlprof_dldb.sqlite",
    "dlprof/nsys_profile.sqlite",
    "nvprof/language_model.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
    "mindspore/msprof_device0/msprof_0_2_1.json",
    "tensorrt/trex/resnet_pt_a100_fp16.profile.json",
]


@pytest.mark.parametrize("file", EVERY)
def test_what_is_added_up_is_whole_on_every_kind_of_trace(shared, file):
    profile = loaded(shared / file)
    kernels = profile.kernels()
    by_launch, by_name = profile.kernel_launches(), profile.kernel_occupancy()
    for frame in (by_launch, by_name, profile.kernel_lengths()):
        assert frame["calls"].sum() == len(kernels)
        assert frame["total"].sum() == kernels["duration"].sum()
        assert frame["share"].sum() == pytest.approx(1)
    known = by_launch["achieved_occupancy"].is_not_null()
    assert (known == by_launch["occupancy_reason"].is_null()).all()
    some = by_launch.filter(known)
    assert (some["achieved_occupancy"] <= some["theoretical_occupancy"] + 1e-12).all()
    use, curve = profile.device_use(), profile.device_curve(37)
    for row in use.rows(named=True):
        own = pl.col("device").eq_missing(row["device"]) & (pl.col("process") == row["process"])
        part = curve.filter(own)
        assert part["kernel_busy"].sum() == row["kernel_busy"] <= row["window"]
        assert part["kernel_time"].sum() == row["kernel_time"]
        assert row["tensor_core_undetermined_time"] <= row["kernel_time"]
        if row["gpu_utilization"] is None:
            assert row["utilization_reason"] is not None
        else:
            assert row["gpu_utilization"] == row["kernel_busy"] / row["window"]
        assert (row["achieved_occupancy"] is None) <= (row["occupancy_reason"] is not None)
    chains = profile.fusable_kernels()
    assert (chains["saving_most"] <= chains["duration"] + chains["gap_time"]).all()
    assert (chains["length"] >= 2).all()


def test_a_name_for_the_gpus_gives_their_occupancy(shared):
    unnamed = traces.load(shared / "nsys" / "fsdp_h100x2_2026.sqlite")
    assert (
        unnamed.device_use()["occupancy_reason"].to_list()
        == ["the device is not known (--gpu gives it a name)"] * 2
    )
    named = traces.load(shared / "nsys" / "fsdp_h100x2_2026.sqlite", gpu="H100 SXM")
    use = named.device_use()
    assert use["occupancy_known"].to_list() == [1.0, 1.0]
    assert use["gpu_utilization"].to_list() == unnamed.device_use()["gpu_utilization"].to_list()
    clusters = named.kernel_launches().filter("clustered")
    assert set(clusters["cluster"]) == {"2,1,1", "4,1,1"}


@pytest.mark.parametrize(
    "name", ["resnet50_nw0_step_span1.pt.trace", "nccl_meta", "qwen1.5_0.5b_h100"]
)
def test_limits_are_those_that_the_device_told_kineto(shared, name):
    with gzip.open(shared / "kineto" / f"{name}.json.gz", "rt", errors="replace") as lines:
        told = json.load(lines, strict=False)["deviceProperties"][0]
    sm = multiprocessor(f"{told['computeMajor']}.{told['computeMinor']}")
    assert told["warpSize"] == WARP
    assert told["maxThreadsPerBlock"] == MOST_THREADS
    assert sm.warps * WARP == told["maxThreadsPerMultiprocessor"]
    assert sm.registers == told["regsPerMultiprocessor"]
    assert sm.shared == told["sharedMemPerMultiprocessor"]
    assert sm.block_shared == told["sharedMemPerBlockOptin"]


@pytest.mark.parametrize(
    "file", ["dlprof/nsys_profile.sqlite", "nsys_more/fuser_h200_test_matmul.sqlite"]
)
def test_limits_are_those_that_the_device_told_nsight(shared, file):
    with closing(sqlite3.connect(f"file:{shared / file}?mode=ro", uri=True)) as base:
        base.row_factory = sqlite3.Row
        told = base.execute("SELECT * FROM TARGET_INFO_GPU").fetchone()
    sm = multiprocessor(f"{told['computeMajor']}.{told['computeMinor']}")
    assert (sm.warps, sm.blocks) == (told["maxWarpsPerSm"], told["maxBlocksPerSm"])
    assert (sm.registers, sm.shared) == (told["maxRegistersPerSm"], told["maxShmemPerSm"])
    assert sm.block_shared == told["maxShmemPerBlockOptin"]
