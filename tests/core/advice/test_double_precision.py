"""Work in f64: of arrays and never of numbers, on a GPU and on the CPU."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests.core.advice.made_products import A100, made
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran

MM = "aten::mm(f64[512,512], f64[512,512]) -> f64[512,512]"
DGEMM = "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x3_nn_align1>(Params)"
#: A consumer's GPU computes in f64 at a 64th of its rate in f32.
RTX = {"name": "NVIDIA GeForce RTX 4090"}


def find(profile, **thresholds):
    return asked("double_precision", profile, **thresholds)


def example():
    return made((MM, "ampere_dgemm_64x64_nn", 30_000_000), device=RTX)


#: What docs/reference/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a product in f64 on a GPU for games", example)


def test_the_most_that_is_saved_follows_from_the_peaks_of_the_device():
    (finding,) = find(example())
    assert (finding.time, finding.saving_least) == (30_000_000, 0)
    assert finding.saving_most == pytest.approx(30_000_000 * (1 - 1 / 64), rel=0.02)
    assert "float32" not in finding.what
    assert "model.float()" in finding.recommendation
    assert finding.edit.kernels[1].tolist() == [0.5]


def test_where_tensor_cores_take_f64_the_ratio_is_that_of_the_highest_peaks():
    (finding,) = find(made((MM, DGEMM, 1_000_000), device=A100))
    assert finding.saving_most == pytest.approx(1_000_000 * (1 - 19.5 / 156), rel=0.02)


def test_without_the_devices_peaks_nothing_bounds_what_is_saved():
    (finding,) = find(on_gpu([ran(MM, 0, 50_000, "dgemm")]))
    assert (finding.saving_most, finding.confidence) == (None, "low")


def test_ops_on_the_cpu_count_too():
    rows = [
        {"text": MM, "start": 0, "end": 90_000},
        {"text": "aten::relu(f32[8])", "start": 95_000, "end": 99_000},
    ]
    (finding,) = find(on_cpu(rows))
    assert finding.time == 90_000
    assert finding.what.startswith("work in f64 takes 0.1 ms")


@pytest.mark.parametrize(
    "text",
    [
        "aten::mm(f32[512,512], f32[512,512]) -> f32[512,512]",
        "aten::mul(f32[512], f64[]) -> f32[512]",
        "aten::div(f64[1], f64[1]) -> f64[1]",
        "aten::_to_copy(f64[512,512]) -> f32[512,512]",
        "aten::add(i64[512], i64[512]) -> i64[512]",
    ],
)
def test_f32_integers_and_single_numbers_are_no_double_precision(text):
    assert find(on_gpu([ran(text, 0, 50_000, "k")])) == []


def test_a_little_is_worth_no_change_unless_the_user_says_so():
    profile = on_gpu([ran(MM, 0, 2_000, "dgemm"), ran("aten::relu(f32[512])", 3_000, 100_000)])
    assert find(profile) == []
    assert len(find(profile, least=0.01)) == 1


def test_where_formats_or_ops_are_unknown_it_cannot_be_told():
    for text in ("aten::mm", None):
        assert isinstance(find(on_gpu([ran(text, 0, 50_000, "dgemm")])), CannotTell)
