"""Sizes that Tensor Cores take badly: which dimension of which call, the size to pad to, and what bounds it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.advice.detectors.tensor_shapes import find
from opscope.core.advice.gemm_sizes import padded, read, step, tile, wasted
from tests import traces
from tests.core.advice.made_products import (
    A100,
    H100,
    HALF,
    SGEMM,
    TF32,
    V100,
    made,
    one,
    reason,
)

GOOD = "aten::mm(f16[8192,4096], f16[4096,4096])"
VOCABULARY = "aten::mm(f16[8192,4096], f16[4096,50257])"

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("a video transformer on an H100", "kineto/timesformer_h100.json.gz")


def test_a_vocabulary_of_50257_is_padded_to_50304():
    profile = made((VOCABULARY, HALF, 40_000_000), (GOOD, HALF, 1_200_000))
    found = one(find(profile))
    assert "N = 50257 → 50304" in found.what
    assert "N = 50257 → 50304" in found.recommendation
    assert found.rows["detail"].to_list() == ["N = 50257 → 50304"]
    grown = 2 * 8192 * 4096 * 50304
    moved = 2 * (8192 * 4096 + 4096 * 50257 + 8192 * 50257) * 50304 / 50257
    roof = max(grown / 312e12, moved / 1555e9) * 1e9
    assert found.saving_most == pytest.approx(40_000_000 - roof, abs=2)
    # the estimate: as near to the roof as the product with good sizes
    reached = 2 * 8192 * 4096**2 / 312e12 * 1e9 / 1_200_000
    assert found.edit.kernels[0].tolist() == [0]
    assert found.edit.kernels[1].tolist() == pytest.approx([roof / reached / 40_000_000], rel=1e-6)


def test_without_products_of_good_sizes_there_are_only_bounds():
    assert one(find(made((VOCABULARY, HALF, 40_000_000)))).edit is None
    found = one(find(made((VOCABULARY, HALF, 40_000_000), device=None)))
    assert (found.edit, found.saving_most) == (None, 40_000_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aten::mm(f16[64,30], f16[30,128])", "K = 30 → 32"),
        ("aten::addmm(bf16[1000], bf16[64,512], bf16[512,1001])", "N = 1001 → 1024"),
        ("aten::bmm(f16[8,64,96], f16[8,96,100])", "N = 100 → 104"),
        ("aten::linear(f16[4,16,100], f16[64,100])", "K = 100 → 104"),
        # M lies one element after the other in a transposed view
        ("aten::mm(f16[100,64]{0,1}, f16[64,128])", "M = 100 → 104"),
        ("aten::mm(i8[128,72], i8[72,128])", "K = 72 → 80"),
        (
            "aten::cudnn_convolution(f16[8,64,28,28], f16[100,64,3,3]) {groups=1}",
            "output channels = 100 → 104",
        ),
        (
            "aten::convolution_backward(f16[8,100,28,28], f16[8,64,28,28], f16[100,64,3,3])",
            "output channels = 100 → 104",
        ),
    ],
)
def test_which_dimension_it_is(text, said):
    found = one(find(made((text, HALF, 1_000))))
    assert found.rows["detail"].to_list() == [said]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "aten::mm(f16[101,64], f16[64,128])",  # M is in no operand's fastest dimension
        "aten::mm(f16[1,100], f16[100,128])",  # a vector
        "aten::mm(f16[4,6], f16[6,8])",  # tiny
        "aten::mm(f32[64,30], f32[30,128])",  # f32, and no product on Tensor Cores
        "aten::cudnn_convolution(f16[8,3,224,224], f16[64,3,7,7])",  # an image
        "aten::cudnn_convolution(f16[8,100,28,28], f16[100,1,3,3]) {groups=100}",
    ],
)
def test_there_is_nothing_to_change(text):
    name = SGEMM if "f32" in text else HALF
    answer = find(made((text, name, 1_000_000), device=H100))
    if "groups" in text:
        assert "not known" in reason(answer)
    else:
        assert answer == []


def test_f32_counts_where_another_product_uses_tf32():
    bad = ("aten::mm(f32[4096,30], f32[30,4096])", SGEMM, 1_000_000)
    found = one(find(made(bad, ("aten::mm(f32[64,64], f32[64,64])", TF32, 100_000))))
    assert "K = 30 → 32" in found.what
    assert "1.0 ms of it in kernels without Tensor Cores" in found.evidence
    assert found.confidence == "high"
    assert find(made(bad, device=V100)) == []


def test_tiles_that_are_part_filled_are_told_with_the_share_outside_the_result():
    call = "aten::mm(f16[8192,4096], f16[4096,4104])"
    name = "ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_nn"
    small = "aten::mm(f16[8192,4096], f16[4096,264])"
    found = one(find(made((call, name, 10_000_000), (small, name, 2_000_000))))
    share = 1 - 264 / 384  # three tiles of 128 columns, the better way round
    assert found.saving_most == int(2_000_000 * share)
    assert "8192 × 264 in tiles of 128 × 256" in found.what
    assert found.edit.kernels[0].tolist() == [1]


def test_what_is_not_known_is_said():
    assert "record shapes" in reason(find(made(("aten::mm()", HALF, 100))))
    assert "no kernel has an op" in reason(find(made((None, HALF, 100))))


@given(st.integers(1, 200_000), st.sampled_from(["f16", "bf16", "i8", "f8e4m3fn", "f32"]))
def test_padding_makes_a_multiple_and_adds_little(size, dtype):
    least, to = step(dtype), padded(size, dtype)
    assert to % least == 0
    assert to >= size
    assert to - size < least or to - size <= size / 8


@given(*[st.integers(1, 600)] * 2, *[st.sampled_from([8, 16, 32, 64, 128, 256])] * 2)
def test_the_waste_of_tiles_is_what_counting_elements_says(m, n, down, across):
    def outside(high, wide):
        covered = math.ceil(m / high) * math.ceil(n / wide) * high * wide
        return (covered - m * n) / covered

    assert wasted(m, n, (down, across)) == pytest.approx(
        min(outside(down, across), outside(across, down))
    )


@pytest.mark.parametrize(
    ("kernel", "sides"),
    [
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
            (128, 128),
        ),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1", (128, 128)),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", (128, 64)),
        ("volta_sgemm_128x32_nt", (128, 32)),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", (192, 192)),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT448x32x64_MI16x16x1", (448, 32)),
        ("void at::native::elementwise_kernel<128, 4>", None),
    ],
)
def test_a_kernels_name_has_its_tile(kernel, sides):
    assert tile(kernel) == sides


def test_calls_that_are_no_products_have_no_sizes():
    assert read("aten::add", "f16[4], f16[4]", None) is None
    assert read("aten::mm", "f16[4,5], f16[6,7]", None) is None
    assert read("aten::mm", "no inputs (", None) is None
    assert read("MatMul", "f16[100,64], f16[100,128]", "transpose_a=true").inner == {
        "M": 64,
        "N": 128,
    }


@pytest.mark.parametrize(
    ("name", "time", "said"),
    [
        # 8 frames of 14×14 patches, and one more, a token: 3137 = 8·392 + 1 is N of one bmm and K of the other, and
        # cuBLAS chose kernels that load element by element (…_align1)
        ("kineto/timesformer_h100.json.gz", 43_207_642, "N = 3137 → 3200"),
        # TF32 on an A100: K = 30 and sizes of 647 and 9375 features; part of it in sgemm
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", None, "N = 30 → 32"),
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", 0, ""),  # f32 on a V100
        ("nvprof/language_model.sqlite", 0, ""),  # the same
    ],
)
def test_real_traces(shared, name, time, said):
    profile = traces.load(shared / name)
    answer = find(profile)
    if time == 0:
        assert answer == []
        return
    found = one(answer)
    assert said in found.what
    assert found.confidence == "high"
    assert found.saving_most < found.time
    if time:
        assert found.time == time


def test_the_parts_of_the_finding_on_the_video_transformer_add_up(shared):
    profile = traces.load(shared / "kineto/timesformer_h100.json.gz")
    kernels = profile.kernels()
    mine = kernels.filter(kernels["op"] == "aten::bmm", kernels["inputs"].str.contains("3137"))
    found = one(find(profile))
    assert found.time == mine["duration"].sum()
    assert len(found.edit.kernels[0]) == len(mine) == 24
    padded_to = 3200 / 3137
    roof = sum(
        max(flops * padded_to / 989.4e12, moved * padded_to / 3.35e12) * 1e9
        for flops, moved in mine.select("matrix_flops", "bytes").rows()
    )
    assert found.saving_most == pytest.approx(found.time - roof, rel=1e-3)


def test_devices_without_tensor_cores_have_no_bad_sizes():
    pascal = {"name": "Tesla P100-PCIE-16GB", "cc": "6.0", "sm_count": 56}
    assert find(made((VOCABULARY, "maxwell_hgemm_128x64_nn", 1_000_000), device=pascal)) == []
    assert one(find(made((VOCABULARY, HALF, 1_000_000), device=A100))).time == 1_000_000
