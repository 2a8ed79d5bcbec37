"""Conversions between NCHW and NHWC: by the kernels' names, the nodes' names, and the layouts of copies."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.detectors.layout_conversions import find
from tests import traces
from tests.core.advice.made_products import FILL, HALF, made, one, reason

CONV = "aten::cudnn_convolution(f16[32,64,56,56], f16[64,64,3,3])"
TO_LAST = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true>"
    "(cudnn::engines_precompiled::nchw2nhwc_params_t<float>, __half const*, __half*)"
)
TO_FIRST = (
    "void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true, false>"
    "(cudnn::engines_precompiled::nhwc2nchw_params_t<float>, __half const*, __half*)"
)
COPY = "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>"

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("a ResNet of eight ranks on an A100", "kineto/nccl_meta.json.gz")


def test_the_conversions_are_removed_by_the_edit_and_nothing_else():
    found = one(
        find(made((CONV, TO_LAST, 30), (CONV, HALF, 100), (CONV, TO_FIRST, 20), (None, FILL, 50)))
    )
    assert (found.time, found.saving_most, found.saving_least) == (50, 50, 0)
    assert "1 NCHW to NHWC" in found.what
    assert "1 NHWC to NCHW" in found.what
    rows, factors = found.edit.kernels
    assert (rows.tolist(), factors.tolist()) == ([0, 2], [0.0, 0.0])
    assert "torch.channels_last" in found.recommendation
    assert found.confidence == "high"  # in half precision convolutions want NHWC


@pytest.mark.parametrize(
    ("text", "name", "way"),
    [
        ("aten::copy_(f32[8,64,56,56]{1,3,2,0}, f32[8,64,56,56])", COPY, "NCHW to NHWC"),
        ("aten::copy_(f32[8,64,56,56], f32[8,64,56,56]{1,3,2,0})", COPY, "NHWC to NCHW"),
        (CONV, "void cudnn::ops::nchwToFoldedNhwcKernel<float>", "NCHW to NHWC"),
        (
            "aten::miopen_convolution(f16[4,8,9,9], f16[8,8,3,3])",
            "batched_transpose_32x32_half",
            "between",
        ),
    ],
)
def test_other_signs_of_a_conversion(text, name, way):
    assert way in one(find(made((text, name, 40), (CONV, HALF, 100)))).what


def test_a_transpose_of_tensorflows_layout_optimizer_is_known_by_its_node():
    node = {"start": 0, "end": 9, "text": '"conv/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer"()'}
    where = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.tensorflow"}
    profile = made(
        (None, "void tensorflow::functor::ShuffleInTensor3Simple", 40), (None, FILL, 50),
        ranges=[{**where, **node, "category": "forward"}],
    )  # fmt: skip
    assert "NHWC to NCHW" in one(find(profile)).what


@pytest.mark.parametrize(
    "rows",
    [
        [(CONV, HALF, 100)],
        [(CONV, TO_LAST, 1), (CONV, HALF, 1000)],
        [("aten::copy_(f32[8,64,56,56], f32[8,64,56,56])", COPY, 40)],  # one order
        [("aten::copy_(f16[8,64,56,56]{1,3,2,0}, f32[8,64,56,56])", COPY, 40)],  # a cast
        [("aten::copy_(f32[64,56]{0,1}, f32[64,56])", COPY, 40)],  # a matrix
        [("aten::addmm(f32[4], f32[4,4], f32[4,4])", "void cudnn::ops::nchwAddPaddingKernel", 9)],
        # the parameter's type of another kernel
        [(CONV, "some_kernel(cudnn::engines_precompiled::nchw2nhwc_params_t<float>)", 40)],
    ],
)
def test_there_is_nothing_to_change(rows):
    assert find(made(*rows)) == []


def test_without_kernels_nobody_can_tell():
    profile = made((CONV, TO_LAST, 40), kernels={"start": pl.Series([], dtype=pl.Int64)})
    assert "no kernels" in reason(find(profile)) or "ran on a GPU" in reason(find(profile))


@pytest.mark.parametrize(
    ("name", "count", "time"),
    [
        # f32 as TF32: cuDNN's kernels want NHWC, PyTorch's tensors are NCHW
        ("kineto/nccl_meta.json.gz", 633, 15_120_910),
        ("kineto/alexnet_cuda_sync_a100.json.gz", 12, 277_000),
        # one convolution: 3 conversions of 0.3 ms in 155 ms, below 1 %
        ("kineto/timesformer_h100.json.gz", 0, 0),
        # f32 on a V100: kernels for NCHW
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", 0, 0),
        # Im3d2Col is an algorithm, not a conversion
        ("xplane/jax_conv_mi300.xplane.pb", 0, 0),
    ],
)
def test_real_traces(shared, name, count, time):
    profile = traces.load(shared / name)
    answer = find(profile)
    if not count:
        assert answer == []
        return
    found = one(answer)
    named = profile.kernels().filter(
        pl.col("name").str.contains("nchwToNhwcKernel|nhwcToNchwKernel")
    )
    assert (len(named), named["duration"].sum()) == (count, time)
    assert found.time == found.saving_most == time
    assert f"{count} kernels" in found.what
