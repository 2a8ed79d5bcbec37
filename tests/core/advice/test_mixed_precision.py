"""Products in f32 where Tensor Cores take f16: what they would save at most, and where precision is mixed."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.detectors.mixed_precision import find
from tests import traces
from tests.core.advice.made_products import (
    A100,
    FILL,
    HALF,
    SECRET,
    SGEMM,
    TF32,
    V100,
    made,
    one,
    reason,
)

MM = "aten::mm(f32[4096,4096], f32[4096,4096])"
ADD = "aten::add(f32[4096,4096], f32[4096,4096])"

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("a ResNet-50 in f32 on a V100", "kineto/resnet50_nw0_step_span1.pt.trace.json.gz")


def test_the_bound_is_the_roof_of_half_precision_and_half_of_the_other_f32_kernels():
    profile = made((MM, "volta_sgemm_128x64_nn", 10_000_000), (ADD, FILL, 600_000), device=V100)
    found = one(find(profile))
    roof = 2 * 4096**3 / 125e12 * 1e9
    assert profile.device[0].peak("f16", True) == 125e12
    assert found.time == 10_000_000
    assert found.saving_most == int(10_000_000 - roof) + 300_000
    assert found.edit.kernels[1].tolist() == pytest.approx([15.7 / 125])
    assert "dtype=torch.float16" in found.recommendation
    assert "GradScaler" in found.recommendation


def test_where_there_is_bf16_it_is_proposed_and_tf32_is_the_present_rate():
    found = one(find(made((MM, TF32, 1_000_000), device=A100)))
    assert "on Tensor Cores as TF32" in found.what
    assert found.edit.kernels[1].tolist() == pytest.approx([156 / 312])
    assert "torch.bfloat16" in found.recommendation
    assert "GradScaler" not in found.recommendation


def test_only_what_ran_on_tensor_cores_is_called_tf32():
    other = "aten::mm(f32[2048,4096], f32[4096,4096])"
    found = one(find(made((MM, TF32, 3_000_000), (other, SGEMM, 2_000_000), device=A100)))
    assert "in f32 (3.0 ms on Tensor Cores as TF32, 2.0 ms without Tensor Cores)" in found.what
    found = one(find(made((MM, SGEMM, 2_000_000), device=A100)))
    assert "TF32" not in found.what
    matrix = "Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_SN"  # rocBLAS, by an instruction for f32
    mi = {"name": "AMD Instinct MI250X", "sm_count": 110}
    found = one(find(made((MM, matrix, 2_000_000), device=mi)))
    assert "could use Matrix Cores in bf16" in found.what
    assert "TF32" not in found.what


def test_products_bound_by_latency_keep_their_time_in_the_estimate():
    found = one(find(made(("aten::mm(f32[64,64], f32[64,64])", SGEMM, 9_000))))
    assert found.edit is None
    assert found.confidence == "low"
    assert found.saving_most < 9_000


@pytest.mark.parametrize(
    ("rows", "device"),
    [
        ([(MM, SGEMM, 100), ("aten::mm(f16[64,64], f16[64,64])", HALF, 50)], A100),  # mixed already
        ([(MM, SGEMM, 100)], {"name": "Tesla P100-PCIE-16GB", "cc": "6.0", "sm_count": 56}),
        ([(MM, SGEMM, 1), (ADD, FILL, 1000)], A100),
        ([("aten::mm(f64[64,64], f64[64,64])", "ampere_dgemm_64x64_nn", 100)], A100),
        ([(MM, SGEMM, 100), (None, HALF, 50)], A100),  # a kernel's name proves a product in f16
    ],
)
def test_there_is_nothing_to_change(rows, device):
    assert find(made(*rows, device=device)) == []


def test_what_is_not_known_is_said():
    assert "--gpu" in reason(find(made((MM, SGEMM, 100), device=None)))
    assert "dtypes of products" in reason(find(made(("aten::mm()", SECRET, 100))))
    assert "no kernel has an op" in reason(find(made((None, SGEMM, 100))))


def test_the_profile_of_which_dlprof_said_the_same(shared):
    # dlprof_expert_systems.csv: 5 ops were eligible to use Tensor Cores, none in FP16
    found = one(find(traces.load(shared / "dlprof/nsys_profile.sqlite")))
    assert found.what.startswith("5 products could use Tensor Cores in f16")
    assert "torch.autocast" in found.recommendation


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        # V100, all convolutions and the last layer in f32: 161 products in each of 6 steps
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", 966),
        # A100, all in f32 (TF32), none in half precision
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", 1776),
        ("nvprof/language_model.sqlite", 39),
        ("kineto/qwen1.5_0.5b_h100.json.gz", None),  # bf16
        ("kineto/timesformer_h100.json.gz", None),  # bf16
        ("xplane/jax_conv_mi300.xplane.pb", None),  # bf16
    ],
)
def test_real_traces(shared, name, calls):
    profile = traces.load(shared / name)
    answer = find(profile)
    if calls is None:
        assert answer == []
        return
    found = one(answer)
    assert f"{calls:,} products" in found.what
    mine = profile.kernels().filter(pl.col("op_type").is_in(["gemm", "conv"]))
    assert found.time == mine["duration"].sum()


def test_compiled_products_without_an_op_are_no_proof_of_either(shared):
    # 118 ms of GEMM kernels run in CompiledFunction, whose shapes the trace has not
    answer = find(traces.load(shared / "kineto/vision_transformer_rank0.json.gz"))
    assert "compute products, by their names" in reason(answer)
