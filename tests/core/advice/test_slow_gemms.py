"""GEMMs far below their roof: the time lost, and facts beside each of which none is called the cause."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.slow_gemms import find
from tests import traces
from tests.core.advice.made_products import A100, FILL, HALF, MI300, SGEMM, made, one, reason

BIG = "aten::mm(f16[8192,4096], f16[4096,4096])"
ROOF = 2 * 8192 * 4096**2 / 312e12 * 1e9

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("a recommendation model on an A100", "kineto/ddp_rank3of8_a100_stacks.json.gz")


def test_the_time_lost_is_that_above_the_roof():
    profile = made((BIG, HALF, 10_000_000, {"grid": "4,4,1"}), (None, FILL, 1_000_000))
    found = one(find(profile))
    assert found.time == 10_000_000
    assert found.saving_most == int(10_000_000 - ROOF)
    (detail,) = found.rows["detail"]
    assert detail.startswith(f"at {ROOF / 1e5:.0f} % of its roof, which arithmetic sets")
    assert "16 blocks for 108 multiprocessors" in detail
    assert found.edit is None  # there is nothing to compare with
    assert found.confidence == "low"


def test_the_estimate_is_what_the_other_products_reach():
    good = int(ROOF / 0.8)
    found = one(find(made((BIG, HALF, 10_000_000), (BIG.replace("8192", "16384"), HALF, 2 * good))))
    assert found.edit.kernels[0].tolist() == [0]
    assert found.edit.kernels[1].tolist() == pytest.approx([good / 10_000_000], rel=1e-6)


@pytest.mark.parametrize(
    ("text", "name", "grid", "said"),
    [
        ("aten::mm(f16[8,16384], f16[16384,16384])", HALF, "1,1", "M = 8 is small"),
        ("aten::mm(f16[65536,32], f16[32,65536])", HALF, "9999,1,1", "K = 32 is small"),
        (
            "aten::mm(f16[8192,4095], f16[4095,8192])",
            HALF,
            "9999,1,1",
            "K = 4095 is no multiple of 8",
        ),
        (BIG, HALF, "150,1,1", "150 blocks are 1.39 for each of 108"),
        ("aten::mm(f32[8192,4096], f32[4096,4096])", SGEMM, "9999,1,1", "f32 on vector units"),
        ("aten::mm(f16[8,16384], f16[16384,16384])", HALF, "1,1", "which memory sets"),
    ],
)
def test_facts_beside_a_product(text, name, grid, said):
    found = one(find(made((text, name, 500_000_000, {"grid": grid}))))
    assert said in found.rows["detail"][0]


@pytest.mark.parametrize(
    "rows",
    [
        [(BIG, HALF, int(ROOF / 0.5))],  # half of the roof is usual
        [("aten::mm(f16[64,64], f16[64,64])", HALF, 9_000)],  # bound by latency
        [(BIG, HALF, 2_000_000), (None, FILL, 900_000_000)],
        [("aten::add(f16[4], f16[4])", FILL, 90)],
        # only a helper is left of it, as in sampled traces: no product could be judged
        [(BIG, "void cublasLt::splitKreduce_kernel<32, 16, int, __half>", 9_000_000)],
    ],
)
def test_there_is_nothing_to_look_at(rows):
    assert find(made(*rows)) == []


def test_what_is_not_known_is_said():
    assert "--gpu" in reason(find(made((BIG, HALF, 9_000_000), device=None)))
    assert "FLOPs" in reason(find(made(("aten::mm()", HALF, 100))))
    assert "no kernel has an op" in reason(find(made((None, HALF, 100))))


def test_a_grid_of_amd_is_not_counted_in_blocks():
    name = "Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1"
    found = one(find(made((BIG, name, 100_000_000, {"grid": "4,4,1"}), device=MI300)))
    assert "blocks" not in found.rows["detail"][0]
    assert found.time == 100_000_000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # 96 blocks for 108 multiprocessors, and features of 9375
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", "96 blocks for 108 multiprocessors"),
        # the attention's products over 3137 tokens
        ("kineto/timesformer_h100.json.gz", "N = 3137 is no multiple of 8"),
        # V100: a gradient of weights at 31 % of the vector units' peak
        (
            "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
            "at 31 % of its roof, which arithmetic sets",
        ),
    ],
)
def test_real_traces(shared, name, said):
    profile = traces.load(shared / name)
    found = one(find(profile))
    assert said in found.recommendation
    assert found.saving_most < found.time <= profile.kernels()["duration"].sum()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kineto/sampled_rank0.json.gz", "--gpu"),
        ("kineto/nccl_meta.json.gz", "FLOPs"),  # no shapes
        (
            "kineto/qwen1.5_0.5b_h100.json.gz",
            "no op with shapes",
        ),  # kernels before the first recorded op
    ],
)
def test_real_traces_that_do_not_tell(shared, name, why):
    assert why in reason(find(traces.load(shared / name)))


def test_the_roof_is_that_of_the_units_that_ran():
    # on vector units 19.5 TFLOP/s are the roof: at 50 % there is nothing to say of the GEMM itself
    single = "aten::mm(f32[4096,4096], f32[4096,4096])"
    assert find(made((single, SGEMM, int(2 * 4096**3 / 19.5e12 * 1e9 * 2)), device=A100)) == []
