"""Attention as products and softmax: proved by shapes on both sides of the softmax."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("TimeSformer, inference in bfloat16 on an H100", "kineto/timesformer_h100.json.gz")
SCORES = "aten::bmm(f16[8,128,64], f16[8,64,128])"
SCALE = "aten::div(f16[2,4,128,128], f16[])"
SOFTMAX = "aten::_softmax(f16[2,4,128,128])"
VALUES = "aten::bmm(f16[8,128,128], f16[8,128,64])"


def find(profile):
    return asked("unfused_attention", profile)


def kernels(*texts):
    return [
        ran(text, 20_000 * n, 20_000 * n + 10_000, "gemm_kernel" if "bmm" in text else "k")
        for n, text in enumerate(texts)
    ]


def test_all_that_touches_the_scores_is_found():
    (found,) = find(
        on_gpu(kernels(SCORES, SCALE, SOFTMAX, VALUES, "aten::mm(f16[64,64], f16[64,64])"))
    )
    # no device is known, so nothing bounds what the products take
    assert (found.time, found.saving_least, found.saving_most) == (40_000, 0, 40_000 + 2 * 5_000)
    assert "128×128" in found.what
    # one product writes them, scaling and softmax read and write them, the other product reads them
    assert f"{6 * 2 * 2 * 4 * 128 * 128 / 1e6:.2f} MB of scores" in found.what
    rows, factors = found.edit.kernels
    assert rows.tolist() == [0, 1, 2, 3]
    assert factors.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert found.edit.launches[0].tolist() == [1, 2]
    assert "scaled_dot_product_attention" in found.recommendation


def test_the_backward_pass_of_the_same_scores_counts():
    backward = [
        {**one, "way": "backward", "start": one["start"] + 10**6, "end": one["end"] + 10**6}
        for one in kernels("aten::bmm(f16[8,128,64], f16[8,64,128])",
                           "aten::_softmax_backward_data(f16[2,4,128,128], f16[2,4,128,128])",
                           "aten::bmm(f16[8,128,128], f16[8,128,64])")
    ]  # fmt: skip
    (found,) = find(on_gpu([*kernels(SCORES, SOFTMAX, VALUES), *backward]))
    assert found.time == 60_000


@pytest.mark.parametrize(
    "texts",
    [
        # a classifier's softmax
        ["aten::addmm(f16[10], f16[64,64], f16[64,10])", "aten::_softmax(f16[64,10])", VALUES],
        # a softmax whose result no product reads
        [SCORES, SOFTMAX, "aten::bmm(f16[8,64,64], f16[8,64,64])"],
        # a softmax that no product of that size wrote
        ["aten::bmm(f16[8,64,64], f16[8,64,64])", SOFTMAX, VALUES],
        ["aten::mul(f16[64], f16[64])", "aten::_log_softmax(f16[2,4,128,128])"],
        ["aten::scaled_dot_product_attention(f16[2,4,128,64], f16[2,4,128,64], f16[2,4,128,64])"],
    ],
)
def test_a_softmax_elsewhere_is_no_attention(texts):
    assert find(on_gpu(kernels(*texts))) == []


def test_without_ops_or_shapes_it_cannot_be_told():
    answer = find(on_gpu([*kernels(SCORES), ran(None, 50_000, 60_000, "softmax_warp_forward")]))
    assert isinstance(answer, CannotTell)
    assert "compute a softmax in no op" in answer.reason
    answer = find(on_gpu([*kernels(SCORES), ran(None, 50_000, 60_000, "k")]))
    assert "has no op" in answer.reason


@pytest.mark.parametrize(
    ("framework", "texts", "word"),
    [
        ("tensorflow", ("BatchMatMulV2(f32[2,4,8,16], f32[2,4,16,8]) -> f32[2,4,8,8]", "Softmax(f32[2,4,8,8])",
                        "BatchMatMulV2(f32[2,4,8,8], f32[2,4,8,16])"), "jit_compile=True"),
        ("onnxruntime", ("MatMul(f32[2,4,8,16], f32[2,4,16,8]) -> f32[2,4,8,8]", "Softmax(f32[2,4,8,8])",
                         "MatMul(f32[2,4,8,8], f32[2,4,8,16])"), "onnxruntime.transformers.optimizer"),
    ],
)  # fmt: skip
def test_other_frameworks_on_the_cpu(framework, texts, word):
    rows = [
        {"text": text, "start": 1_000 * n, "end": 1_000 * n + 800} for n, text in enumerate(texts)
    ]
    (found,) = find(on_cpu(rows, framework))
    assert found.time == 2_400
    assert word in found.recommendation
    assert found.edit.host["factor"].to_list() == [1.0, 0.0, 1.0]


def test_without_a_gpu_shares_are_of_the_ops_time():
    texts = ("MatMul(f32[2,4,8,16], f32[2,4,16,8]) -> f32[2,4,8,8]", "Softmax(f32[2,4,8,8])",
             "MatMul(f32[2,4,8,8], f32[2,4,8,16])")  # fmt: skip
    rows = [{"text": text, "start": 1_000 * n, "end": 1_000 * n + 800} for n, text in enumerate(texts)]  # fmt: skip
    (row,) = on_cpu(rows, "onnxruntime").advice(["unfused_attention"]).to_dicts()
    assert "100.0 % of the ops' time" in row["finding"]
    assert "device" not in row["finding"] + row["threshold"]


def test_an_op_whose_cost_counts_around_a_tiny_op_is_seen_whole():
    """PyTorch's profiler records resolve_conj inside bmm, and copies of scalars inside mul."""
    texts = (SCORES, SCALE, SOFTMAX, VALUES)
    outer = [
        {"text": text, "start": 2_000 * n, "end": 2_000 * n + 1_800} for n, text in enumerate(texts)
    ]
    inner = [
        {"text": text, "start": 2_000 * n + 100, "end": 2_000 * n + 300}
        for n, text in ((0, "aten::resolve_conj(f16[8,64,128])"), (1, "aten::copy_(f16[], f64[])"))
    ]
    (found,) = find(on_cpu([*outer, *inner]))
    assert found.time == 4 * 1_800
    assert found.edit.host["factor"].to_list() == [1.0, 0.0, 0.0, 1.0]


def test_who_calls_the_fused_function_already_is_told_how_to_learn_why_it_is_refused():
    texts = (SCORES, "aten::_safe_softmax(f16[2,4,128,128])", VALUES)
    rows = [
        {"text": text, "start": 2_000 * n, "end": 2_000 * n + 800} for n, text in enumerate(texts)
    ]
    (found,) = find(on_cpu(rows))
    assert "sdpa_kernel" in found.recommendation
    assert "in place of the two products" not in found.recommendation


@pytest.mark.parametrize(
    ("trace", "outcome"),
    [
        # two kinds of attention, over space (3,137) and over time (8)
        ("kineto/timesformer_h100.json.gz", "found"),
        # torch.nn.MultiheadAttention of 2019
        ("nvprof/language_model.sqlite", "found"),
        # convolutions
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "nothing"),
        # a softmax over two sizes only: a router's
        ("kineto/sampled_rank0.json.gz", "nothing"),
        # flash attention, but kernels without an op
        ("kineto/qwen1.5_0.5b_h100.json.gz", "cannot tell"),
        ("kineto/vllm_decode_cudagraph.json.gz", "cannot tell"),
        ("rocm/rocprofv1_gfx1201_llamacpp/results.csv", "cannot tell"),
    ],
)
def test_real_traces(shared, trace, outcome):
    found = find(traces.load(shared / trace))
    told = "cannot tell" if isinstance(found, CannotTell) else "found" if found else "nothing"
    assert told == outcome


def test_timesformers_figures_are_those_of_a_count_by_hand(shared):
    """By layer and kind: softmax and scaling of the scores, one product before them and one after."""
    profile = traces.load(shared / EXAMPLE[1])
    (found,) = find(profile)
    kernels = profile.kernels()
    scores = ("8,12,3137,3137", "3136,12,8,8", "96,3137,3137", "37632,8,8")
    other = ("96,3137,64", "37632,8,64")
    touching = pl.any_horizontal(
        *(pl.col("inputs").str.contains(f"[{one}]", literal=True) for one in scores)
    )
    writes = (pl.col("op") == "aten::bmm") & pl.any_horizontal(
        *(pl.col("inputs").str.starts_with(f"bf16[{one}]") for one in other)
    )
    mine = kernels.filter(touching | writes)
    assert found.time == mine["duration"].sum()
    assert mine["op"].value_counts().sort("op").rows() == [
        ("aten::_softmax", 24), ("aten::bmm", 48), ("aten::mul", 24)
    ]  # fmt: skip
    products = mine.filter(pl.col("op") == "aten::bmm")
    device, _ = profile.device
    least = int(products["matrix_flops"].sum() / max(device.tensor.values()) * 1e9)
    host = found.edit.host
    gone = (host["end"] - host["start"]).sum()
    assert found.saving_most == found.time - least + gone
    kept = found.edit.kernels[1]
    assert sum(kept == 0.0) == 48


def test_a_program_that_reads_its_result_waits_for_less(shared):
    """The copy to the host waits for all kernels: what is taken from them ends the program sooner."""
    profile = traces.load(shared / EXAMPLE[1])
    (row,) = profile.advice().filter(detector="unfused_attention").rows(named=True)
    (found,) = find(profile)
    vanishes = found.edit.kernels
    gone = profile.kernels()["duration"].gather(vanishes[0][vanishes[1] == 0.0]).sum()
    assert 0.9 * gone < row["saving"] <= row["saving_most"]
