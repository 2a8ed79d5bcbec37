"""Real Kineto traces: figures computed apart from opscope, and those of other tools."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.analysis.summary.summary_table import summary_table as summary
from tests import traces

#: file → communication share (of the window of the steps) and overlap, in percent, computed apart
COMMUNICATION = {
    "ddp_rank3of8_a100_stacks": (35.2, 46.24),
    "ddp_memory_v100": (20.6, 0.0),
    "vision_transformer_rank0": (15.3, 1.36),
    "nccl_meta": (7.0, 15.61),
}


@pytest.mark.parametrize("name", COMMUNICATION)
def test_communication_share_and_overlap(shared: Path, name: str):
    row = traces.load(shared / f"kineto/{name}.json.gz").communication().row(0, named=True)
    share, overlap = COMMUNICATION[name]
    assert round(100 * row["communication_share"], 1) == share
    assert round(100 * row["overlap"], 2) == overlap


def test_communication_of_the_a100_rank_to_the_microsecond(shared: Path):
    profile = traces.load(shared / "kineto/ddp_rank3of8_a100_stacks.json.gz")
    row = profile.communication().row(0, named=True)
    assert row["window"] == 465_171_000
    assert round(row["communication_share"] * row["window"]) == 163_535_000


@pytest.fixture(scope="module")
def qwen(shared: Path) -> opscope.Profile:
    return traces.load(shared / "kineto/qwen1.5_0.5b_h100.json.gz")


@pytest.fixture(scope="module")
def resnet(shared: Path) -> opscope.Profile:
    return traces.load(shared / "kineto/resnet50_nw0_step_span1.pt.trace.json.gz")


def gemms(shared: Path) -> list[dict[str, str]]:
    with open(shared / "kineto/qwen_tracelens/GEMM.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_gemm_flops_are_tracelens_s(qwen, shared):
    """``mm`` equal; ``addmm`` without the M·N that TraceLens adds for the bias.

    PyTorch's flop counter and MFU count a contraction alone, and so does opscope.
    """
    ops = qwen.ops()
    checked = 0
    for row in gemms(shared):
        dims = [tuple(d) for d in ast.literal_eval(row["Input Dims_first"]) if d]
        shapes = [f"[{','.join(map(str, d))}]" for d in dims]
        same = ops.filter(
            (pl.col("op").cast(pl.String) == row["name"])
            & (
                pl.col("inputs").cast(pl.String).str.extract_all(r"\[[\d,]+\]").list.join(" ")
                == " ".join(shapes)
            )
        )
        theirs = round(float(row["GFLOPS_first"]) * 1e9)
        if row["name"] == "aten::addmm":
            theirs -= int(row["param: M"]) * int(row["param: N"])
        assert same["matrix_flops"].unique().to_list() == [theirs], row["name"]
        assert len(same) == int(row["name_count"])
        checked += len(same)
    assert checked == 96 + 72 + 1  # mm, addmm, and one bmm


def test_every_launched_kernel_of_qwen_has_an_op_with_shapes(qwen):
    launched = qwen.kernels().filter(pl.col("call_start").is_not_null())
    assert launched["op_id"].null_count() == 0
    # what makes numbers of its arguments alone has these
    assert launched.filter(pl.col("inputs").is_null())["op"].to_list() == ["aten::arange"]
    assert launched.filter(pl.col("inputs").is_null())["params"].null_count() == 0
    reasons = qwen.unattributed()["reason"].cast(pl.String).to_list()
    assert reasons == ["no launch record"]
    summary = qwen.summary().row(0, named=True)
    assert summary["launched_share"] == pytest.approx(1 - 0.301, abs=5e-4)


def test_ops_by_device_time_are_tracelens_s(qwen, shared):
    """Kernels launched by each op, in µs: its table leaves out what was launched before the trace."""
    with open(shared / "kineto/qwen_tracelens/ops_summary.csv", newline="") as file:
        theirs = {
            row["name"]: float(row["total_direct_kernel_time_sum"]) for row in csv.DictReader(file)
        }
    ours = dict(
        qwen.op_totals()
        .group_by("op")
        .agg(pl.col("device_time").sum())
        .cast({"op": pl.String})
        .rows()
    )
    for name, micros in theirs.items():
        if micros:
            assert ours[name] / 1000 == pytest.approx(micros, abs=1), name


def test_resnet50_has_shapes_sources_and_links(resnet):
    kernels = resnet.kernels()
    assert kernels["op_id"].null_count() == 0
    assert resnet.summary()["device_busy"].item() == 603_558_000  # the plug-in's operator sum, µs
    by = kernels.filter(pl.col("op_type").cast(pl.String).is_in(["conv", "gemm", "norm"]))
    assert by["inputs"].null_count() == 0
    backward = kernels.filter(pl.col("direction").cast(pl.String) == "backward")
    assert backward["duration"].sum() > kernels["duration"].sum() / 2
    # gradients are accumulated once a parameter and step, 161 × 6 times, on behalf of no forward op
    unknown = backward.filter(pl.col("source").is_null())
    # those that meet are added up 16 × 6 times, and summed over the batch once a step
    assert len(unknown) == 966 + 96 + 6
    ops = {"aten::add_": 966, "aten::add": 96, "aten::sum": 6}
    assert dict(unknown.group_by("op").len().rows()) == ops
    assert kernels["step"].null_count() < 0.01 * len(kernels)


def test_a_graph_replayed_kernel_has_the_op_that_was_captured(shared: Path):
    """Shapes exist only in the trace of the capture; the order of 421 launches joins the two."""
    replay = shared / "kineto/vllm_decode_cudagraph.json.gz"
    alone = traces.load(replay).unattributed().row(0, named=True)
    assert alone["reason"] == "replayed from a CUDA graph whose capture is not in the trace"
    assert alone["kernels"] == 421
    both = traces.load([replay, shared / "kineto/vllm_decode_cudagraph_capture.json.gz"])
    assert both.summary()["unattributed_time"].item() == 0
    replayed = both.kernels().filter(pl.col("inferred"))
    assert len(replayed) == 421
    one, row = traces.load(replay).summary(), both.summary()
    same = ["wall_time", "device_time", "device_busy", "kernels", "copies", "processes", "devices"]
    assert row.select(same).equals(one.select(same))
    (line,) = [one for one in summary(both).rows if one["what"] == "shapes from"]
    assert "vllm_decode_cudagraph_capture.json.gz" in line["remark"]
    assert "its own 7 kernels and 3 copies and sets are not counted" in line["remark"]
    assert replayed["inputs"].null_count() == 0
    # what the kernel's name says of itself is what its op is
    for kernel, op in [
        ("rotary_embedding_kernel", "_C::rotary_embedding"),
        ("reshape_and_cache_flash_kernel", "_C_cache_ops::reshape_and_cache_flash"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias", "aten::addmm"),
        ("kernel_unified_attention", "vllm::unified_attention_with_output"),
        ("_topk_forward", "TopK"),
    ]:
        named = replayed.filter(pl.col("name").cast(pl.String).str.contains(kernel, literal=True))
        assert named["op"].cast(pl.String).unique().to_list() == [op]
