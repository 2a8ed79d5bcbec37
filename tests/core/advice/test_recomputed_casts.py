"""Weights cast again and again: told from activations by the shapes of products, bounded by the casts' time."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

#: A cast of a weight of a linear layer, and the product that uses it.
WEIGHT = "aten::copy_(f16[256,128], f32[256,128])"
INPUT = "aten::copy_(f16[64,128], f32[64,128])"
PRODUCT = "aten::addmm(f16[256], f16[64,128], f16[128,256]{0,1})"
COPY = "void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>(int)"


def autocast():
    """Three steps of a linear layer under autocast: weight and input are cast, then multiplied."""
    rows, at = [], 0
    for step in range(3):
        for text, took, name in (
            (WEIGHT, 3_000, COPY),
            (INPUT, 2_000, COPY),
            (PRODUCT, 20_000, "gemm"),
        ):
            rows.append(ran(text, 1_000 * at, 1_000 * (at + took), name, step=step))
            at += took + 500
    return on_gpu(rows)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a linear layer under autocast, three steps", autocast)


def find(profile):
    return asked("recomputed_casts", profile)


def test_the_weights_casts_count_and_the_inputs_do_not():
    (found,) = find(autocast())
    # and what launches them on the host: ops of 5 µs
    assert (found.time, found.saving_least, found.saving_most) == (9_000_000, 0, 9_015_000)
    assert "a weight is cast to another number format 3 times, 1.0 times a step each" in found.what
    assert found.edit.kernels[0].tolist() == [0, 3, 6]
    assert found.edit.kernels[1].tolist() == [0.0] * 3
    assert found.edit.launches[0].tolist() == [0, 3, 6]
    assert "torch.autocast" in found.recommendation
    assert found.rows["count"].to_list() == [3]


def test_repeats_within_a_step_are_said():
    rows = [ran(WEIGHT, 10_000 * n, 10_000 * n + 3_000, COPY, step=1) for n in range(4)]
    (found,) = find(on_gpu([*rows, ran(PRODUCT, 50_000, 60_000, "gemm", step=1)]))
    assert "4.0 times a step each" in found.what
    assert f"{3 * 3_000 / 1e3:,.1f} µs" in found.reasoning


@pytest.mark.parametrize(
    "texts",
    [
        # once
        [WEIGHT, PRODUCT],
        # activations
        [INPUT, INPUT, PRODUCT],
        # between layouts
        ["aten::copy_(f32[256,128], f32[256,128]{0,1})"] * 2 + [PRODUCT],
        # of integers
        ["aten::copy_(i64[256,128], i32[256,128])"] * 2 + [PRODUCT],
        # of a size that is a weight's and an input's: it cannot be told which
        [WEIGHT, WEIGHT, PRODUCT, "aten::mm(f16[256,128], f16[128,64])"],
        # the scores of attention are no weights
        ["aten::copy_(f16[8,64,32], f32[8,64,32])"] * 2 + ["aten::bmm(f16[8,64,64], f16[8,64,32])"],
    ],
)
def test_other_copies_are_no_casts_of_weights(texts):
    rows = [ran(text, 10_000 * n, 10_000 * n + 3_000, COPY) for n, text in enumerate(texts)]
    assert find(on_gpu(rows)) == []


def test_without_ops_or_shapes_it_cannot_be_told():
    rows = [ran(None, 10_000 * n, 10_000 * n + 3_000, COPY) for n in range(3)]
    answer = find(on_gpu([*rows, ran(PRODUCT, 40_000, 60_000, "gemm")]))
    assert isinstance(answer, CannotTell)
    assert "31.0 %" in answer.reason


def test_on_the_cpu_the_casts_are_ops_and_a_layers_weights_are_its_own():
    texts = ["aten::_to_copy(f32[256,128]) -> bf16[256,128] {dtype=\"bf16\"}",
             "aten::addmm(bf16[256], bf16[64,128], bf16[128,256]{0,1})"]  # fmt: skip
    rows = []
    for n in range(4):
        layer = {
            "text": f"net.{n % 2}",
            "start": 10_000 * n,
            "end": 10_000 * n + 6_000,
            "category": "layer",
        }
        rows += [layer] + [
            {"text": text, "start": 10_000 * n + 2_000 * m, "end": 10_000 * n + 2_000 * m + 1_000}
            for m, text in enumerate(texts)
        ]  # fmt: skip
    (found,) = find(on_cpu(rows))
    assert found.time == 4_000
    assert "2 weights are cast to another number format 4 times" in found.what
    assert found.edit.host["start"].to_list() == [0, 10_000, 20_000, 30_000]


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        # f32 throughout
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", True),
        # bfloat16 throughout: no casts
        ("kineto/timesformer_h100.json.gz", True),
        # indices are cast, weights are not
        ("kineto/sampled_rank0.json.gz", True),
        # activations are cast in RMSNorm, weights are not; but 30 % of the time has no op
        ("kineto/qwen1.5_0.5b_h100.json.gz", False),
        # copies without shapes
        ("nsys/fsdp_h100x2_2026.sqlite", False),
        ("kineto/vllm_decode_cudagraph.json.gz", False),
    ],
)
def test_no_shared_trace_casts_its_weights(shared, trace, told):
    found = find(traces.load(shared / trace))
    assert found == [] if told else isinstance(found, CannotTell)
