"""Real Nsight Systems traces: the figures that a brute force over SQL gives, to the nanosecond."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import opscope
from tests import traces

REFERENCE = {
    "nsys/fsdp_h100x2_2026.sqlite": (4010, 3986, 516_689_349, 24, 18_511_301),
    "nsys/cudf_2020.sqlite": (268, 268, 85_847_520, 0, 0),
    "dlprof/nsys_profile.sqlite": (59, 59, 589_147, 0, 0),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_the_brute_force_table(shared: Path, name: str):
    profile = traces.load(shared / name)
    kernels = profile.kernels()
    count, attributed, attributed_ns, unlaunched, unlaunched_ns = REFERENCE[name]
    has_op = kernels.filter(pl.col("op_id").is_not_null())
    none = kernels.filter(pl.col("reason").cast(pl.String) == "no launch record")
    assert (len(kernels), len(has_op), has_op["duration"].sum()) == (
        count,
        attributed,
        attributed_ns,
    )
    assert (len(none), none["duration"].sum()) == (unlaunched, unlaunched_ns)
    summary = profile.summary().row(0, named=True)
    assert summary["attributed_time"] + summary["unattributed_time"] == summary["kernel_time"]
    assert summary["kernel_time"] == attributed_ns + unlaunched_ns


@pytest.fixture(scope="module")
def fsdp(shared: Path) -> opscope.Profile:
    return traces.load(shared / "nsys/fsdp_h100x2_2026.sqlite")


def test_two_processes_whose_correlation_ids_repeat(fsdp):
    kernels, ranges = fsdp.kernels(), fsdp.trace["ranges"]
    assert kernels["process"].n_unique() == 2
    assert kernels["device"].n_unique() == 2
    # joining on the correlation id alone pairs kernels with the other process's launches
    calls = fsdp.trace["calls"]
    wrong = fsdp.trace["kernels"].join(calls, on="correlation", how="inner")
    assert len(wrong) == 4280
    joined = kernels.join(ranges.select("id", owner="process"), left_on="op_id", right_on="id")
    assert len(joined) == 3986
    assert (joined["process"] == joined["owner"]).all()


def test_nccl_kernels_belong_to_the_calls_of_their_group(fsdp):
    nccl = fsdp.kernels().filter(pl.col("name").cast(pl.String).str.contains("ncclDevKernel"))
    launched = nccl.filter(pl.col("reason").is_null())
    assert len(launched) == 64
    assert set(launched["op"].cast(pl.String)) == {"ncclSend+ncclRecv"}
    assert set(launched["direction"].cast(pl.String)) == {"communication"}
    ops = fsdp.ops()
    parents = ops.filter(pl.col("op_id").is_in(launched["op_id"].implode()))["parent_id"]
    assert set(ops.filter(pl.col("op_id").is_in(parents.implode()))["op"].cast(pl.String)) == {
        "nccl:all_to_all"
    }


def test_ops_by_name_are_those_of_the_brute_force(fsdp):
    counts = Counter(fsdp.kernels()["op"].drop_nulls().cast(pl.String))
    expected = {
        "aten::copy_": 1816,
        "aten::add": 505,
        "aten::mul": 501,
        "aten::addmm": 335,
        "aten::pow": 134,
        "aten::mean": 134,
        "aten::rsqrt": 134,
        "aten::cat": 129,
        "aten::native_layer_norm": 102,
        "flash_attn::_flash_attn_forward": 66,
    }
    assert {name: counts[name] for name in expected} == expected


@pytest.fixture(scope="module")
def lenet(shared: Path) -> opscope.Profile:
    return traces.load(shared / "dlprof/nsys_profile.sqlite")


def dlprof_iteration(shared: Path) -> list[dict[str, str]]:
    with open(shared / "dlprof/dlprof_iteration.csv", newline="") as file:
        next(file)
        return list(csv.DictReader(file))


def test_dlprof_markers_give_the_kernels_of_dlprofs_own_report(lenet, shared):
    """Each op's kernels, by name, start and duration, as DLProf listed them."""
    theirs: dict[str, set] = {}
    for row in dlprof_iteration(shared):
        key = row["Op ID"]
        theirs.setdefault(key, set()).add(
            (int(row["GPU Start Time (ns)"]), int(row["GPU Duration (ns)"]))
        )
    wanted = {key: value for key, value in theirs.items() if key.startswith(("CONV2D", "LINEAR"))}
    assert sorted(wanted) == ["CONV2D_1", "CONV2D_2", "LINEAR_1", "LINEAR_2", "LINEAR_3"]
    ours = kernels_by_marker(lenet, {"torch.nn.functional.conv2d", "torch.nn.functional.linear"})
    assert sorted(ours, key=min) == sorted(wanted.values(), key=min)


def kernels_by_marker(profile: opscope.Profile, names: set[str]) -> list[set]:
    """For each op of one of these names the (start, duration) of the kernels inside it."""
    ops, kernels = profile.ops(), profile.kernels().filter(pl.col("op_id").is_not_null())
    parent = dict(zip(ops["op_id"], ops["parent_id"], strict=True))
    name = dict(zip(ops["op_id"], ops["op"].cast(pl.String), strict=True))
    found: dict[int, set] = {}
    for op_id, start, duration in kernels.select("op_id", "start", "duration").iter_rows():
        at = op_id
        while at is not None and name[at] not in names:
            at = parent[at]
        if at is not None:
            found.setdefault(at, set()).add((start, duration))
    return list(found.values())


def test_dlprof_markers_give_shapes_and_types(lenet):
    ops = lenet.ops()
    convs = ops.filter(pl.col("op").cast(pl.String).str.ends_with("conv2d"))
    marked = convs.filter(pl.col("inputs").is_not_null())["inputs"].cast(pl.String).to_list()
    assert "f32[32,3,32,32], f32[6,3,3,3], f32[6]" in marked[0]
    assert all("f32[" in text for text in marked)
