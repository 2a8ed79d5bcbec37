"""Ranges of steps that mix: warm-up, cut off, of other work, very uneven; and the range to take instead."""

from __future__ import annotations

import pytest

from opscope.core.advice.detectors.iteration_range import DETECTOR
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import one, profile, ranged, step

MS = 1_000_000
#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = (
    "a ResNet-50 on a GPU whose data loader has four workers",
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
)


def steps(*lengths, ops=None):
    """Steps of so many ms, with as many ops (10 if not given)."""
    rows, at = [], 0
    for number, length in enumerate(lengths):
        rows.append(step(number, at, at + length * MS))
        many = ops[number] if ops else 10
        rows += [
            ranged(at + 10 + 100 * place, at + 60 + 100 * place, "aten::mm(f32[8,8], f32[8,8])")
            for place in range(many)
        ]
        at += length * MS
    return profile(ranges=rows)


@pytest.mark.parametrize(
    ("made", "said", "first", "last"),
    [
        (steps(50, 10, 10, 10, 10, 10), "1 of warm-up", 1, 5),
        (steps(10, 10, 10, 10, 10, ops=(10, 10, 10, 10, 5)), "1 of other work", 0, 3),
        (steps(10, 10, 10, 40, 10), "more than 3 times the median", 0, 2),
    ],
)
def test_what_stands_out_is_said_and_the_rest_recommended(made, said, first, last):
    found = one(DETECTOR, made)
    assert said in found.what
    assert f"--iter-start {first} --iter-stop {last}`" in found.recommendation
    assert (found.saving_least, found.saving, found.saving_most) == (0, 0, 0)
    stand_out = made.iterations().join(found.rows, left_on="iteration", right_on="step", how="semi")
    assert found.time == stand_out["duration"].sum() == found.rows["time"].sum()


def test_steps_that_are_alike_are_nothing_to_change():
    assert DETECTOR.find(steps(10, 10, 11, 10, 10)) == []


@pytest.mark.parametrize("made", [steps(10, 10), profile(ranges=[ranged(0, 9, "aten::mm()")])])
def test_too_few_steps_cannot_be_judged(made):
    assert isinstance(DETECTOR.find(made), CannotTell)


@pytest.mark.parametrize(
    ("name", "said", "range_"),
    [
        # 181.6 ms, then 116 to 163
        ("kineto/resnet50_nw4_step_span1.pt.trace.json.gz", "1 of warm-up", (6, 8)),
        # 1,780 kernels, of which 705 were launched before the trace, then 1,075 in each
        ("kineto/vision_transformer_rank0.json.gz", "launched before the capture", (551, 554)),
        # rank 2's first step takes 2.16 s, the others 0.18
        ("mindspore/mindinsight_cluster", "1 of warm-up", (2, 5)),
        # ten steps are marked, and the tasks of the first recorded
        ("mindspore/msprof_device0", "9 that the capture does not hold whole", None),
    ],
)
def test_real_traces(shared, name, said, range_):
    found = one(DETECTOR, traces.load(shared / name))
    assert said in found.what
    if range_ is None:
        assert "Record more steps" in found.recommendation
    else:
        assert f"--iter-start {range_[0]} --iter-stop {range_[1]}`" in found.recommendation


@pytest.mark.parametrize(
    "name", ["resnet50_nw0_step_span1.pt.trace", "ddp_memory_v100", "ddp_rank3of8_a100_stacks", "nccl_meta"]
)  # fmt: skip
def test_real_traces_whose_steps_are_alike(shared, name):
    """Each step's ops and kernels are within 1 % of the others'; the longest is 1.06 times the median."""
    assert DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz")) == []


def test_the_other_way_to_record_later_steps_is_the_framework_s(shared):
    (row,) = traces.load(shared / "mindspore" / "msprof_device0").advice(
        ["iteration_range"]
    ).rows(named=True)  # fmt: skip
    assert "mindspore.profiler.schedule(" in row["recommendation"]
    assert "torch" not in row["recommendation"]
