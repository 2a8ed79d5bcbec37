"""f32 products without Tensor Cores: where TF32 would change them, where it is on already, and what is unknown."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.tf32_off import find
from opscope.core.perf.devices.peaks import Device
from tests import traces
from tests.core.advice.made_products import (
    A100,
    FILL,
    HALF,
    MI300,
    SECRET,
    SGEMM,
    TF32,
    V100,
    made,
    one,
    reason,
)

MM = "aten::mm(f32[4096,4096], f32[4096,4096])"
CONV = (
    "aten::cudnn_convolution(f32[64,256,28,28], f32[256,256,3,3]) {padding=[1, 1], stride=[1, 1],"
    " dilation=[1, 1], groups=1, benchmark=false, deterministic=false, allow_tf32=false}"
)
WINOGRAD = "ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"


def example():
    return made((MM, SGEMM, 8_000_000), (CONV, WINOGRAD, 3_000_000), (None, FILL, 1_000_000))


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: an f32 product and a convolution with TF32 off on an A100", example)


def test_the_bound_is_the_roof_with_tf32_recomputed_from_the_kernels():
    profile = made((MM, SGEMM, 8_000_000), (MM, SGEMM, 9_000_000), (None, FILL, 1_000_000))
    found = one(find(profile))
    device: Device = profile.device[0]
    flops, moved = 2 * 4096**3, 3 * 4096**2 * 4
    roof = max(flops / 156e12, moved / device.bandwidth) * 1e9
    assert (device.peak("f32", True), device.peak("f32", False)) == (156e12, 19.5e12)
    assert found.time == 17_000_000
    assert found.saving_most == int(17_000_000 - 2 * roof)
    rows, factors = found.edit.kernels
    assert rows.tolist() == [0, 1]
    # both rates are of the same FLOPs: 156 to 19.5
    assert factors.tolist() == pytest.approx([0.125, 0.125])
    assert found.rows["count"].to_list() == [2]


def test_gemms_and_convolutions_have_switches_of_their_own():
    assert one(find(made((MM, SGEMM, 100)))).recommendation.startswith(
        'torch.set_float32_matmul_precision("high") ('
    )
    found = one(find(made((CONV, WINOGRAD, 100))))
    assert "cudnn.allow_tf32 = True" in found.recommendation
    assert "matmul_precision" not in found.recommendation


def test_a_recorded_parameter_makes_it_certain():
    assert one(find(made((CONV, WINOGRAD, 100)))).confidence == "high"
    assert one(find(made((MM, SGEMM, 100)))).confidence == "medium"


@pytest.mark.parametrize(
    ("rows", "device"),
    [
        # TF32 is on: another f32 product uses Tensor Cores, so the library chose this kernel
        ([(MM, SGEMM, 100), ("aten::mm(f32[64,64], f32[64,64])", TF32, 10)], A100),
        # the GPU has no TF32
        ([(MM, SGEMM, 100)], V100),
        ([(MM, SGEMM, 100)], MI300),
        ([("aten::mm(f16[64,64], f16[64,64])", HALF, 100)], A100),
        # a vector gains nothing, and what is no multiple of 16 bytes is a matter of its size
        ([("aten::mm(f32[1,4096], f32[4096,4096])", "gemv2T_kernel_val", 100)], A100),
        ([("aten::mm(f32[4096,4095], f32[4095,4096])", SGEMM, 100)], A100),
        ([(MM, SGEMM, 1), (None, FILL, 1000)], A100),
        ([("aten::add(f32[4], f32[4])", FILL, 10)], A100),
    ],
)
def test_there_is_nothing_to_change(rows, device):
    assert find(made(*rows, device=device)) == []


def test_a_convolution_on_tensor_cores_does_not_prove_that_gemms_may():
    found = one(find(made((MM, SGEMM, 100), (CONV, "sm80_xmma_fprop_implicit_gemm_tf32f32", 50))))
    assert found.time == 100


def test_what_is_not_known_is_said():
    assert "neither shapes" in reason(find(made((MM, SECRET, 100))))
    assert "--gpu" in reason(find(made((MM, SGEMM, 100), device=None)))
    assert "no kernel has an op" in reason(find(made((None, SGEMM, 100))))
    assert (
        "50"
        in one(
            find(made((MM, SGEMM, 100), (MM, SECRET, 50_000_000), (MM, SGEMM, 50_000_000)))
        ).evidence
    )


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        # A100, no shapes: 6 addmm run ampere_sgemm, 2 convolutions ampere_scudnn, none uses Tensor Cores
        ("kineto/alexnet_cuda_sync_a100.json.gz", 4_737_000),
        # A100: 80 % of the f32 GEMMs' time is tensorop_s1688gemm, so TF32 is on; sgemm is the library's choice
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", None),
        ("kineto/nccl_meta.json.gz", None),
        # V100: no TF32
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", None),
        # bf16 throughout
        ("kineto/qwen1.5_0.5b_h100.json.gz", None),
    ],
)
def test_real_traces(shared, name, answer):
    profile = traces.load(shared / name)
    answers = find(profile)
    if answer is None:
        assert answers == []
        return
    found = one(answers)
    kernels = profile.kernels()
    single = kernels["name"].str.contains("_sgemm_|_scudnn_")
    named = kernels.filter(single, kernels["op_type"].is_in(["gemm", "conv"]))
    assert found.time >= named["duration"].sum()
    assert found.time == answer
    assert found.confidence == "low"  # without shapes these may be products of a vector
