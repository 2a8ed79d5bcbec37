"""Kernels without a range of an op: told where kernels ran, and nowhere else."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu, on_gpu, ran, spans

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("PyTorch's matrix products under rocmProfileData", "rocm/rpd/matmul_result.rpd")


def find(profile):
    return asked("no_ranges", profile)


def test_kernels_without_any_op():
    (found,) = find(on_gpu([ran(None, 0, 10, "k"), ran(None, 20, 50, "long")], None))
    assert (found.time, found.saving, found.saving_most) == (40, 0, 0)
    assert "2 kernels" in found.what
    assert found.evidence == "kernels with most time: long; k"
    assert "opscope run" in found.recommendation
    assert found.rows.select("kernel", "count", "time").rows() == [("long", 1, 30), ("k", 1, 10)]


def test_kernels_beyond_those_that_are_listed_are_in_the_last_row():
    many = [ran(None, 10 * n, 10 * n + 5, f"k{n}") for n in range(25)]
    (found,) = find(on_gpu(many, None))
    assert found.rows["time"].sum() == found.time == 125
    assert found.rows.select("kernel", "count", "detail").rows()[-1] == (None, 5, "5 more rows")


def test_ranges_that_are_no_ops_are_counted():
    others = spans([{"text": "mine", "start": 10**9, "end": 10**9 + 5}], None)
    (found,) = find(on_gpu([ran(None, 0, 10, "k")], None, others))
    assert "1 ranges were recorded, none of which is an op" in found.evidence


def test_one_op_is_enough():
    assert find(on_gpu([ran(None, 0, 10), ran("aten::add(f32[4])", 20, 50)])) == []


def test_without_kernels_it_cannot_be_told():
    answer = find(on_cpu([{"text": "aten::add(f32[4])", "start": 0, "end": 9}]))
    assert isinstance(answer, CannotTell)
    assert "nothing ran on a GPU" in answer.reason


@pytest.mark.parametrize(
    ("trace", "outcome"),
    [
        # recorded by ROCm's tools, without markers
        ("rocm/rpd/matmul_result.rpd", "found"),
        ("rocm/rocprofv1_mi300_gunrock/results.csv", "found"),
        ("rocm/rocprofv1_gfx1201_llamacpp/results.csv", "found"),
        ("kineto/resnet50_nw0_step_span1.pt.trace.json.gz", "nothing"),
        # replayed from CUDA graphs: few kernels have an op, and the reason is another
        ("kineto/vllm_decode_cudagraph.json.gz", "nothing"),
        ("nsys/cudf_2020.sqlite", "nothing"),
        ("nsys_more/jacc_a100_nocuda_2026.1.sqlite", "cannot tell"),
        ("kineto/alexnet_cupti_counters_a100.json.gz", "cannot tell"),
    ],
)
def test_real_traces(shared, trace, outcome):
    profile = traces.load(shared / trace)
    found = find(profile)
    told = "cannot tell" if isinstance(found, CannotTell) else "found" if found else "nothing"
    assert told == outcome
    if told == "found":
        assert found[0].time == profile.summary()["kernel_time"].item()
        assert profile.kernels()["op"].null_count() == len(profile.kernels())
