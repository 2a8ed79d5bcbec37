"""Generated kernels: what they fused, and whose they are."""

from __future__ import annotations

import pytest

from opscope.core.attribution.compiled_regions import fused_ops
from opscope.profile import Profile


@pytest.mark.parametrize(
    ("kernel", "fused"),
    [
        ("triton_poi_fused_add_cos_sin_0", "add_cos_sin"),
        ("triton_poi_fused__to_copy_1", "to_copy"),
        ("triton_poi_fused_0", None),
        ("triton_red_fused_native_layer_norm_12", "native_layer_norm"),
        ("triton_per_fused_add_native_layer_norm_3", "add_native_layer_norm"),
        ("graph_12_cpp_fused_mul_relu_sin_0", "mul_relu_sin"),
        ("ampere_sgemm_128x64_tn", None),
        ("my_triton_poi_fused_add_0", None),
    ],
)
def test_what_a_generated_kernel_fused(kernel, fused):
    assert fused_ops(kernel) == fused


def test_a_regions_kernels_are_told_apart(trace_of):
    place = {"process": 0, "thread": 1}
    launches = [
        {**place, "start": 10 + n, "end": 11 + n, "name": "cuLaunchKernel", "correlation": n}
        for n in range(3)
    ]
    names = ["triton_poi_fused_add_0", "triton_poi_fused_mul_1", "triton_poi_fused_mul_1"]
    kernels = [
        {"process": 0, "device": 0, "start": 50, "end": 60, "name": name, "correlation": n}
        for n, name in enumerate(names[:2])
    ]
    kernels.append({**kernels[1], "correlation": 9})  # launched by nobody: it keeps its reason
    region = {
        **place, "start": 5, "end": 40, "domain": "kineto", "kind": "pushpop",
        "text": '"Torch-Compiled Region: 0/0"()',
    }  # fmt: skip
    profile = Profile(trace_of(ranges=[region], calls=launches, kernels=kernels))
    rows = profile.kernels().select("op", "op_type", "layer", "reason").rows()
    assert rows == [
        ("triton_poi_fused_add_0", "fused", "Torch-Compiled Region: 0/0", None),
        ("triton_poi_fused_mul_1", "fused", "Torch-Compiled Region: 0/0", None),
        (None, None, None, "no launch record"),
    ]


def test_what_the_compiler_wrote_of_its_kernel_counts(trace_of):
    place = {"process": 0, "thread": 1}
    calls = [
        {**place, "start": 10 + n, "end": 11 + n, "name": "cuLaunchKernel", "correlation": n}
        for n in range(4)
    ]
    written = [
        '{"kernel_flop": 4096, "kernel_num_gb": 0.000002}',
        '{"num_warps": 4}',
        None,
        '{"kernel_num_gb": 0.000003}',
    ]
    kernels = [
        {"process": 0, "device": 0, "start": 50, "end": 60, "name": f"triton_poi_fused_add_{n}",
         "correlation": n, "attrs": attrs}
        for n, attrs in enumerate(written)
    ]  # fmt: skip
    region = {
        **place, "start": 5, "end": 40, "domain": "kineto", "kind": "pushpop",
        "text": '"Torch-Compiled Region: 0/0"()',
    }  # fmt: skip
    frame = Profile(trace_of(ranges=[region], calls=calls, kernels=kernels)).kernels()
    assert frame["flops"].to_list() == [4096, None, None, None]
    assert frame["bytes"].to_list() == [2000, None, None, 3000]
