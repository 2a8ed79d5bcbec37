"""Memory-bound ops in f32 beside products in half precision: by formats alone, and never in a run in f32."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("Qwen1.5 0.5B, inference in bfloat16 on an H100", "kineto/qwen1.5_0.5b_h100.json.gz")
HALF = ran("aten::mm(f16[64,64], f16[64,64])", 0, 50_000, "gemm")
SINGLE = ran("aten::mm(f32[64,64], f32[64,64])", 0, 40_000, "gemm")
NORM = ran("aten::native_layer_norm(f32[64,64], f32[64], f32[64])", 60_000, 70_001, "norm")


def find(profile):
    return asked("fp32_under_autocast", profile)


def test_half_of_the_time_at_most():
    (found,) = find(on_gpu([HALF, NORM]))
    assert (found.time, found.saving_least, found.saving_most) == (10_001, 0, 5_000)
    assert "norm" in found.what
    assert found.edit.kernels[0].tolist() == [1]
    assert found.edit.kernels[1].tolist() == [0.5]
    assert found.edit.launches is None
    assert found.confidence == "low"


@pytest.mark.parametrize(
    "other",
    [
        "aten::native_layer_norm(f16[64,64], f32[64], f32[64])",
        "aten::mul(f16[64], f32[64])",
        "aten::nll_loss_forward(f32[64,10], i64[64])",
        "aten::add(i64[64], i64[64])",
        "aten::add(f32[], f32[])",
    ],
)
def test_half_precision_losses_and_integers_are_none_of_it(other):
    assert find(on_gpu([HALF, {**NORM, "text": other}])) == []


def test_the_optimizer_computes_in_f32():
    assert (
        find(on_gpu([HALF, {**NORM, "text": "aten::add(f32[64], f32[64])", "way": "optimizer"}]))
        == []
    )


def test_where_most_products_are_in_f32_there_is_no_autocast():
    assert find(on_gpu([SINGLE, NORM])) == []
    # 40 of 90 µs of products are in half precision
    assert (
        find(on_gpu([{**SINGLE, "end": 50_000}, {**HALF, "start": 80_000, "end": 120_000}, NORM]))
        == []
    )


def test_without_products_or_formats_it_cannot_be_told():
    assert isinstance(find(on_gpu([NORM])), CannotTell)
    assert isinstance(find(on_gpu([HALF, NORM, ran(None, 80_000, 99_000, "k")])), list)
    answer = find(on_gpu([HALF, ran(None, 80_000, 99_000, "k")]))
    assert isinstance(answer, CannotTell)
    assert "no op" in answer.reason


def test_on_the_cpu():
    rows = [{"text": "aten::mm(bf16[64,64], bf16[64,64])", "start": 0, "end": 500},
            {"text": "aten::_softmax(f32[64,64])", "start": 600, "end": 1_000}]  # fmt: skip
    (found,) = find(on_cpu(rows))
    assert (found.time, found.saving_most) == (400, 200)
    assert found.edit.host["factor"].to_list() == [0.5]


@pytest.mark.parametrize(
    ("trace", "outcome"),
    [
        # RMSNorm as arithmetic in f32, all products in bfloat16
        ("kineto/qwen1.5_0.5b_h100.json.gz", "found"),
        # all of it in bfloat16
        ("kineto/timesformer_h100.json.gz", "nothing"),
        # all of it in f32
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "nothing"),
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", "nothing"),
        # no shapes
        ("kineto/nccl_meta.json.gz", "cannot tell"),
        ("nsys/fsdp_h100x2_2026.sqlite", "cannot tell"),
        # no products at all
        ("nsys/cudf_2020.sqlite", "cannot tell"),
    ],
)
def test_real_traces(shared, trace, outcome):
    profile = traces.load(shared / trace)
    found = find(profile)
    told = "cannot tell" if isinstance(found, CannotTell) else "found" if found else "nothing"
    assert told == outcome
    if told == "found":
        kernels = profile.kernels().filter(
            pl.col("op_type").is_in(["norm", "softmax", "dropout", "activation", "elementwise"]),
            # a number is a tensor of f64 without sizes
            pl.col("dtypes").is_in(["f32", "f32,f64"]),
            ~pl.col("inputs").str.contains(r"^f32\[\]$"),
        )
        assert found[0].time == kernels["duration"].sum()
        assert found[0].saving_most == found[0].time // 2
        assert "aten::pow" in set(kernels["op"])
