"""Nothing compiled: told only where the framework is known and nearly all time has an op."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran, spans

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "ResNet-50 of the PyTorch profiler's tutorial, num_workers=0",
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
)
PRODUCT = ran("aten::mm(f32[64,64], f32[64,64])", 0, 80_000, "ampere_sgemm_128x64_tn")
ADD = ran("aten::add(f32[64], f32[64])", 90_000, 110_000)


def find(profile):
    return asked("no_fusion", profile)


def test_elementwise_work_in_a_run_without_a_compiler():
    (found,) = find(on_gpu([PRODUCT, ADD]))
    assert (found.time, found.saving_least, found.saving_most) == (20_000, 0, 20_000)
    assert "20.0 %" in found.what
    assert found.recommendation == "model = torch.compile(model)"


@pytest.mark.parametrize(
    ("framework", "word"),
    [("tensorflow", "jit_compile"), ("jax", "jax.jit"), ("mindspore", "GRAPH_MODE")],
)
def test_the_recommendation_is_for_the_users_framework(framework, word):
    (found,) = find(on_gpu([PRODUCT, ADD], framework))
    assert word in found.recommendation


def test_a_compiled_region_a_generated_kernel_or_a_compilation_ends_it():
    region = ran('"Torch-Compiled Region: 0/0"()', 120_000, 130_000)
    assert find(on_gpu([PRODUCT, ADD, region])) == []
    for name in (
        "triton_poi_fused_add_0",
        "loop_add_fusion",
        "nvfuser_none_f1_c1_r1_g1",
        "fusion_12",
    ):
        assert find(on_gpu([PRODUCT, ADD, ran("aten::add(f32[64])", 120_000, 130_000, name)])) == []
    compiled = spans([{"text": "compile 0/0 f", "start": 0, "end": 10}])
    assert find(on_gpu([PRODUCT, ADD], others=compiled)) == []
    # TensorFlow traces a function in that phase: that is no compilation
    assert len(find(on_gpu([PRODUCT, ADD], "tensorflow", others=compiled))) == 1


def test_little_elementwise_work_is_nothing_to_compile():
    assert (
        find(on_gpu([{**PRODUCT, "end": 10**6}, {**ADD, "start": 10**6, "end": 10**6 + 20_000}]))
        == []
    )
    # the optimizer's is another detector's
    assert find(on_gpu([PRODUCT, {**ADD, "way": "optimizer"}])) == []


def test_what_has_no_op_may_be_compiled():
    answer = find(on_gpu([PRODUCT, ADD, ran(None, 120_000, 180_000, "gemm_kernel")]))
    assert isinstance(answer, CannotTell)
    assert "62.5 %" in answer.reason


@pytest.mark.parametrize("framework", ["onnxruntime", None])
def test_without_a_framework_or_with_one_that_compiles_nothing_it_cannot_be_told(framework):
    rows = [ran("mine.Add(f32[4])", 0, 10)]
    assert isinstance(find(on_gpu(rows, framework)), CannotTell)


def test_on_the_cpu():
    rows = [{"text": "aten::add(f32[64], f32[64])", "start": 0, "end": 500},
            {"text": "aten::mm(f32[64,64], f32[64,64])", "start": 500, "end": 1_000}]  # fmt: skip
    (found,) = find(on_cpu(rows))
    assert found.time == 500
    assert isinstance(
        find(on_cpu([{"text": "mine", "start": 0, "end": 9, "category": None}])), CannotTell
    )


@pytest.mark.parametrize(
    ("trace", "outcome"),
    [
        # eager PyTorch, all kernels with ops, 12 to 16 % elementwise
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "found"),
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", "found"),
        ("kineto/nccl_meta.json.gz", "found"),
        ("nsys/fsdp_h100x2_2026.sqlite", "found"),
        ("nvprof/language_model.sqlite", "found"),
        # CompiledFunction, Torch-Compiled Region, nvFuser's kernels
        ("kineto/ddp_memory_v100.json.gz", "nothing"),
        ("kineto/vision_transformer_rank0.json.gz", "nothing"),
        ("kineto/triton_example.json.gz", "nothing"),
        ("nsys_more/fuser_h200_test_matmul.sqlite", "nothing"),
        # LeNet: 1.5 % elementwise; JAX: nothing but convolutions and copies
        ("dlprof/nsys_profile.sqlite", "nothing"),
        # 30 % of the kernels' time lies before the first op
        ("kineto/qwen1.5_0.5b_h100.json.gz", "cannot tell"),
        # no framework: llama.cpp, a graph library, data frames
        ("rocm/rocprofv1_gfx1201_llamacpp/results.csv", "cannot tell"),
        ("rocm/rocprofv1_mi300_gunrock/results.csv", "cannot tell"),
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
            pl.col("op_type").is_in(["elementwise", "activation", "dropout"]),
            pl.col("direction").ne_missing("optimizer"),
        )
        assert found[0].time == found[0].saving_most == kernels["duration"].sum()
