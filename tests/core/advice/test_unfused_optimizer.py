"""Optimizers of many small kernels: by step, without products, and silent for fused and listed ones."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "ResNet-50 of the PyTorch profiler's tutorial, num_workers=0",
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
)
MOMENTUM = (
    "aten::mul_(f32[100], f32[])",
    "aten::add_(f32[100], f32[100])",
    "aten::add_(f32[100], f32[100])",
)
FORWARD = ran("aten::mm(f32[64,64], f32[64,64])", 0, 10_000, "gemm", step=0)


def find(profile):
    return asked("unfused_optimizer", profile)


def sgd(parameters=12, steps=2, texts=MOMENTUM, name="k", gap=100):
    rows, at = [FORWARD], 20_000
    for step in range(steps):
        for _ in range(parameters):
            for text in texts:
                rows.append(ran(text, at, at + 1_000, name, way="optimizer", step=step))
                at += 1_000 + gap
        at += 500_000
    return on_gpu(rows)


def test_at_most_all_but_the_longest_pass_and_the_gaps():
    (found,) = find(sgd())
    assert found.time == 2 * 36_000
    # of each step: 24 of 36 kernels are add_, the longest pass; 35 gaps of 100 ns
    # and the ops of 5 µs that launched all but the first of a step
    assert found.saving_most == 2 * (12_000 + 35 * 100 + 35 * 5_000)
    assert found.saving_least == 0
    assert "36 a step" in found.what
    rows, factors = found.edit.kernels
    assert len(rows) == 72
    assert (factors == 1.0).all()  # 7/3 of the longest pass is more than all
    assert len(found.edit.launches[0]) == 70
    assert "fused=True" in found.recommendation


def test_many_passes_are_estimated_as_seven_thirds_of_the_longest():
    adam = tuple(f"aten::{op}(f32[100], f32[100])" for op in
                 ("lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_"))  # fmt: skip
    (found,) = find(sgd(texts=adam))
    assert np.allclose(found.edit.kernels[1], 7 / 3 / 7)


def test_few_kernels_and_fused_ones_are_no_finding():
    assert find(sgd(parameters=9)) == []
    assert find(sgd(texts=("aten::_fused_adam_([f32[100]]*12)",) * 3)) == []
    assert find(sgd(name="void multi_tensor_apply_kernel<FusedAdamMathFunctor>")) == []
    assert find(sgd(texts=("aten::_foreach_add_([f32[100]]*12)",) * 3)) == []


def test_products_and_zeros_are_not_an_update():
    assert find(sgd(texts=("aten::mm(f32[9,9], f32[9,9])",) * 3)) == []
    assert find(sgd(texts=("aten::zero_(f32[100])",) * 3)) == []


def test_gaps_that_something_else_makes_do_not_count():
    (found,) = find(sgd(gap=150_000))
    assert found.saving_most == 2 * (12_000 + 35 * 5_000)


def test_without_directions_it_cannot_be_told():
    backward = ran("aten::mm(f32[64,64], f32[64,64])", 0, 10_000, "gemm", way="backward")
    assert "nothing is marked as the optimizer's" in find(on_gpu([backward])).reason
    assert isinstance(find(on_gpu([ran(None, 0, 10, "k")])), CannotTell)
    assert find(on_gpu([FORWARD])) == []


def test_on_the_cpu():
    rows = [
        {"text": text, "start": 1_000 * n, "end": 1_000 * n + 600, "category": "optimizer"}
        for n, text in enumerate(MOMENTUM * 12)
    ]
    (found,) = find(on_cpu(rows))
    assert found.time == 36 * 600
    assert found.saving_most == 12 * 600 + 35 * 400
    assert found.edit.host.height == 36


@pytest.mark.parametrize(
    ("trace", "outcome"),
    [
        # SGD with momentum of 2021, 161 parameters, three kernels each
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "found"),
        # one add_ for each of 404 parameters
        ("kineto/ddp_memory_v100.json.gz", "found"),
        # _foreach_add_ and _foreach_mul_
        ("kineto/nccl_meta.json.gz", "nothing"),
        # FusedAdam; but 14 % of the time has no op
        ("kineto/vision_transformer_rank0.json.gz", "cannot tell"),
        # products of a second-order optimizer, and lists of tensors
        ("kineto/sampled_rank0.json.gz", "nothing"),
        # inference
        ("kineto/timesformer_h100.json.gz", "nothing"),
        # a backward pass, and an optimizer that nothing marks
        ("nvprof/language_model.sqlite", "cannot tell"),
        ("nsys/cudf_2020.sqlite", "cannot tell"),
    ],
)
def test_real_traces(shared, trace, outcome):
    found = find(traces.load(shared / trace))
    told = "cannot tell" if isinstance(found, CannotTell) else "found" if found else "nothing"
    assert told == outcome


def test_resnet50s_figures_are_those_of_its_kernels(shared):
    profile = traces.load(shared / EXAMPLE[1])
    (found,) = find(profile)
    kernels = profile.kernels().filter(
        pl.col("direction") == "optimizer", pl.col("op").is_in(["aten::add_", "aten::mul_"])
    )
    assert len(kernels) == 6 * 161 * 3
    assert found.time == kernels["duration"].sum()
    passes = kernels.group_by("step", "op").agg(pl.col("duration").sum())
    shorter = (
        passes["duration"].sum()
        - passes.group_by("step").agg(pl.col("duration").max())["duration"].sum()
    )
    gaps = sum(
        gap
        for step in kernels.sort("start").partition_by("step")
        for gap in (step["start"][1:] - step["end"][:-1]).clip(lower_bound=0).to_list()
        if gap < 100_000
    )
    host = found.edit.host
    gone = (host["end"] - host["start"]).sum()
    assert found.saving_most == shorter + gaps + gone
