"""Communication above a tenth of the step: its share, and what accumulation of gradients would save."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.communication_share import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import ALL_REDUCE, kernel, one, profile, ranged, step

#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "a vision transformer on 16 GPUs, of which one was profiled",
    "kineto/vision_transformer_rank0.json.gz",
)


def made(exposed, hidden=0):
    """Two steps of 1,000 ns with as much of each communicating beside nothing, and beside a kernel."""
    kernels, ranges = [], []
    for number in range(2):
        at = 1000 * number
        kernels += [
            kernel(at, at + 1000 - exposed),
            kernel(at + 1000 - exposed - hidden, at + 1000, ALL_REDUCE, stream=9),
        ]
        ranges.append(step(number, at, at + 1000))
    return profile(kernels=kernels, ranges=ranges)


def test_the_share_by_step_and_the_saving_of_k_steps():
    found = one(DETECTOR, made(exposed=200, hidden=100))
    assert (found.time, found.saving_most) == (600, 400)
    assert "30.0 % of its" in found.what
    assert "between 30.0 % and 30.0 %" in found.what
    rows, factors = found.edit.kernels
    assert (rows.tolist(), factors.tolist()) == ([1, 3], [0.25, 0.25])
    assert "k = 2: 0.2 µs" in found.reasoning


@pytest.mark.parametrize("of", [made(exposed=100), made(exposed=5, hidden=600)])
def test_a_tenth_or_hidden_communication_is_nothing_to_change(of):
    assert DETECTOR.find(of) == []


def test_without_computation_it_cannot_tell():
    assert isinstance(DETECTOR.find(profile(kernels=[kernel(0, 9, ALL_REDUCE)])), CannotTell)


@pytest.mark.parametrize(
    ("name", "fires"),
    [
        ("ddp_memory_v100", True),  # 20.6 %
        ("ddp_rank3of8_a100_stacks", True),  # 35.2 %
        ("vision_transformer_rank0", True),  # 15.3 %
        ("sampled_rank1", True),  # 30.6 %
        ("nccl_meta", False),  # 7.0 %
        ("resnet50_nw0_step_span1.pt.trace", False),
    ],
)
def test_real_traces(shared, name, fires):
    loaded = traces.load(shared / "kineto" / f"{name}.json.gz")
    answer = DETECTOR.find(loaded)
    assert len(answer) == fires
    if fires:
        row = loaded.communication().row(0, named=True)
        assert answer[0].time == row["communication_time"]
        assert answer[0].saving_most == row["communication_time"] - row["overlap_time"]


def test_accumulation_saves_the_reductions_of_gradients_alone(shared):
    """Of rank 3's exposed communication nearly all is all-to-alls of embeddings, which stay in each step."""
    loaded = traces.load(shared / "kineto" / "ddp_rank3of8_a100_stacks.json.gz")
    found = one(DETECTOR, loaded)
    assert len(found.edit.kernels[0]) == 18
    assert "of the 4.5 ms of exposed reductions" in found.reasoning


def test_accumulation_is_no_change_for_what_reduces_no_gradients():
    all_to_all = "ncclDevKernel_AlltoAll_f32_RING_LL(ncclDevKernelArgs)"
    kernels = [
        kernel(0, 600),
        kernel(600, 900, all_to_all, stream=9),
        kernel(900, 1000, ALL_REDUCE, stream=9),
    ]
    found = one(DETECTOR, profile(kernels=kernels, ranges=[step(0, 0, 1000)]))
    assert found.recommendation.startswith("Send less in each all_to_all")
    assert "no_sync" not in found.recommendation
    kernels = [
        kernel(0, 600),
        kernel(600, 700, all_to_all, stream=9),
        kernel(700, 1000, ALL_REDUCE, stream=9),
    ]
    found = one(DETECTOR, profile(kernels=kernels, ranges=[step(0, 0, 1000)]))
    assert "Send less" not in found.recommendation


@pytest.mark.parametrize(("kind", "less"), [("all_to_all", True), ("all_reduce", False)])
def test_a_cpu_s_collectives_have_the_change_of_their_kind(kind, less):
    ranges = [
        step(0, 0, 1000),
        ranged(0, 400, "aten::mm(f32[8,8], f32[8,8])"),
        ranged(500, 900, f"gloo:{kind}(f32[8])", "communication", thread=2),
    ]
    found = one(DETECTOR, profile(ranges=ranges))
    assert found.recommendation.startswith(f"Send less in each {kind}") is less


def test_the_evidence_names_the_share_that_was_asked_for():
    (found,) = DETECTOR.find(made(exposed=200, hidden=100), least=0.25)
    assert "1 of 1 processes that communicate are above 25 %" in found.evidence
