"""Compiled regions from tables: on the CPU by their ops, on a GPU by their kernels."""

from __future__ import annotations

import polars as pl

from opscope.profile import Profile

REGION = "Torch-Compiled Region: 0/0"


def ran(text: str, start: int, end: int, way: str = "forward") -> dict:
    return {"process": 0, "thread": 1, "domain": "opscope.torch", "category": way,
            "kind": "pushpop", "text": text, "start": start, "end": end}  # fmt: skip


def rows(profile: Profile) -> list[tuple]:
    frame = profile.compiled()
    text = [name for name, kind in frame.schema.items() if kind == pl.Categorical]
    return frame.with_columns(pl.col(text).cast(pl.String)).drop("source").rows()


def test_on_the_cpu_what_the_code_calls_and_what_is_left(trace_of):
    trace = trace_of(
        ranges=[
            ran(f'"{REGION}"() {{kernels=2}}', 0, 100),
            ran(
                'cpp_fused_add_gelu_0(f32[2]) {fused="aten::add.Tensor, aten::gelu"} on cpu', 10, 30
            ),
            ran("cpp_fused_mul_1(f32[2]) on cpu", 30, 40),
            ran("aten::addmm.out(f32[2], f32[2,2], f32[2,2])", 50, 90),
            ran("aten::empty()", 60, 70),  # of addmm's own
            ran("aten::add(f32[2], f32[2])", 200, 210),  # outside
        ]
    )
    profile = Profile(trace)
    assert rows(profile) == [
        (REGION, "forward", "aten::addmm.out", None, 1, 40, 0.4),
        (REGION, "forward", REGION, None, 1, 30, 0.3),
        (REGION, "forward", "cpp_fused_add_gelu_0", "aten::add.Tensor, aten::gelu", 1, 20, 0.2),
        (REGION, "forward", "cpp_fused_mul_1", "mul", 1, 10, 0.1),
    ]
    types = dict(profile.ops().select(pl.col("op", "op_type").cast(pl.String)).rows())
    assert types["cpp_fused_add_gelu_0"] == "fused"
    assert types[REGION] == "compiled"


def test_a_region_within_a_region_is_no_op_that_hides_what_its_code_calls(trace_of):
    kineto = [
        {**ran(text, start, end), "domain": "kineto", "category": None}
        for text, start, end in (
            (f'"{REGION}"()', 0, 100), ("CompiledFunction()", 10, 90),
            ("aten::addmm(f32[2], f32[2,2], f32[2,2])", 20, 50), ("aten::copy_()", 30, 40),
            ("graph_0_cpp_fused_mul_relu_0()", 60, 80),
        )
    ]  # fmt: skip
    assert rows(Profile(trace_of(ranges=kineto))) == [
        (REGION, "forward", "CompiledFunction", None, 1, 30, 0.3),
        (REGION, "forward", "aten::addmm", None, 1, 30, 0.3),
        (REGION, "forward", REGION, None, 1, 20, 0.2),
        (REGION, "forward", "graph_0_cpp_fused_mul_relu_0", "mul_relu", 1, 20, 0.2),
    ]


def test_on_a_gpu_the_kernels_by_the_outermost_region(trace_of):
    place = {"process": 0, "thread": 1}
    launches = [
        {**place, "start": 10 + n, "end": 11 + n, "name": "cuLaunchKernel", "correlation": n}
        for n in range(3)
    ]
    kernels = [
        {
            "process": 0,
            "device": 0,
            "start": 50 + 10 * n,
            "end": 55 + 10 * n,
            "name": name,
            "correlation": n,
        }
        for n, name in enumerate(["triton_poi_fused_add_0", "triton_poi_fused_add_0", "gemm"])
    ]
    ranges = [
        ran(f'"{REGION}"()', 5, 40),
        ran("CompiledFunction()", 6, 39),
        ran('triton_poi_fused_add_0(f32[8]) {fused="aten::add.Tensor"}', 10, 11),
    ]
    profile = Profile(trace_of(ranges=ranges, calls=launches, kernels=kernels))
    found = sorted(rows(profile), key=str)
    assert found == [
        (REGION, "forward", "gemm", None, 1, 5, 1 / 3),
        (REGION, "forward", "triton_poi_fused_add_0", "add", 1, 5, 1 / 3),
        (REGION, "forward", "triton_poi_fused_add_0", "aten::add.Tensor", 1, 5, 1 / 3),
    ]


def test_a_program_that_compiles_nothing_has_none(trace_of):
    assert Profile(trace_of(ranges=[ran("aten::add()", 0, 5)])).compiled().is_empty()
