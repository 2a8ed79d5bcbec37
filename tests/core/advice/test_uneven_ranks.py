"""Ranks that make the others wait: who, by how much, what it does meanwhile; and where nobody can tell."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.detectors.uneven_ranks import DETECTOR
from opscope.core.advice.diagnosis_parts import late_by
from opscope.core.advice.finding import CannotTell
from tests import traces
from tests.core.advice.job_rows import (
    ALL_REDUCE,
    US,
    gloo_all_reduce,
    job,
    kernel,
    one,
    ranged,
    step,
)


def steps(late, *, input_of=None, op_of=None, ranks=2, many=6):
    """Steps of 100 µs that end with an all-reduce, to which each rank comes ``late`` µs; what the late rank
    does until then is its loader's, an op's, or nothing that was recorded."""
    rows = []
    for number in range(many):
        at = 100 * number
        for rank in range(ranks):
            begin = at + 20 + late[rank]
            rows.append(step(number, at * US, (at + 100) * US, rank))
            rows.append(
                ranged((at + 1) * US, (at + 10) * US, "aten::mm(f32[8,8], f32[8,8])", process=rank)
            )
            if input_of == rank:
                rows.append(
                    ranged(
                        (at + 10) * US,
                        (begin - 5) * US,
                        "DataLoader()",
                        "input",
                        rank,
                        domain="opscope.input",
                    )
                )
            if op_of == rank:
                rows.append(
                    ranged(
                        (at + 10) * US,
                        (begin - 5) * US,
                        "aten::mm(f32[9,9], f32[9,9])",
                        process=rank,
                    )
                )
            rows.append(gloo_all_reduce(rank, begin * US, (at + 95) * US))
    return job(*rows, ranks=ranks)  # fmt: skip


def asleep():
    return steps((0, 60, 0, 0), ranks=4)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: four ranks, of which one sleeps in each step", asleep)


def test_the_sleeping_rank_is_named_with_its_lateness():
    found = one(DETECTOR, asleep())
    assert "mostly for rank 1" in found.what
    assert found.time == found.saving_most == 6 * 60 * US
    assert "6 of 6" in found.what
    assert "its program outside any op" in found.what
    assert "garbage collection" in found.recommendation
    assert found.rows["time"].to_list() == [3 * 6 * 60 * US, 0, 0, 0]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"input_of": 1}, "waiting for its data loader"),
        ({"op_of": 1}, "the ops of its host"),
        ({}, "its program outside any op"),
    ],
)
def test_what_the_late_rank_does_is_told(how, said):
    found = one(DETECTOR, steps((0, 60), **how))
    assert said in found.what
    assert found.confidence == "high"


def test_ranks_that_are_late_in_turn_are_not_accused():
    rows = []
    for number in range(8):
        at, late = 100 * number, number % 4
        rows += [gloo_all_reduce(rank, (at + 10 + (50 if rank == late else 0)) * US, (at + 90) * US)
                 for rank in range(4)]  # fmt: skip
    found = one(DETECTOR, job(*rows, ranks=4))
    assert "no rank alone is late" in found.what
    assert found.time == found.saving_most == 6 * 50 * US


def test_even_ranks_are_nothing_to_change():
    assert DETECTOR.find(steps((0, 1))) == []
    assert DETECTOR.find(job(ranged(0, 10, "aten::mm(f32[8,8], f32[8,8])"), ranks=1)) == []


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (job(gloo_all_reduce(0, 100, 200), ranks=1), "one rank of a job"),
        (job(*(gloo_all_reduce(rank, 100, 200) for rank in range(2)), grouped=False), ""),
        (job(ranks=1, grouped=False), "neither kernels nor ops"),
    ],
)
def test_where_it_cannot_be_told(made, why):
    answer = DETECTOR.find(made)
    if why:
        assert isinstance(answer, CannotTell)
        assert why in answer.reason
    else:
        assert isinstance(answer, CannotTell) or answer == []


def test_two_ranks_whose_groups_were_not_recorded_cannot_be_compared(shared):
    names = [shared / "kineto" / f"sampled_rank{rank}.json.gz" for rank in range(2)]
    answer = DETECTOR.find(traces.load(names))
    assert isinstance(answer, CannotTell)
    assert "no process groups" in answer.reason


@pytest.mark.parametrize("name", ["ddp_memory_v100", "nccl_meta", "vision_transformer_rank0"])
def test_one_rank_cannot_tell(shared, name):
    assert isinstance(DETECTOR.find(traces.load(shared / "kineto" / f"{name}.json.gz")), CannotTell)


def on_gpus(late, many=6):
    """Steps of 100 µs: a product that takes ``late`` µs longer on each rank, then an all-reduce of NCCL."""
    ranges, calls, kernels = [], [], []
    for number in range(many):
        for rank, longer in enumerate(late):
            at = 100 * number
            ranges.append(step(number, at * US, (at + 100) * US, rank))
            spans = [
                ("aten::mm(f32[8,8], f32[8,8])", "gemm", at + 10, at + 30 + longer),
                (
                    'c10d::allreduce_([f32[8]], _) -> ([=0], _) {process_group="0"}',
                    ALL_REDUCE,
                    at + 30 + longer,
                    at + 95,
                ),
            ]
            for place, (text, name, start, end) in enumerate(spans):
                number_of = 2 * number + place + 1
                begin = (at + 1 + 4 * place) * US
                category = "communication" if place else "forward"
                ranges.append(ranged(begin, begin + 3 * US, text, category, rank))
                calls.append(
                    {
                        "process": rank,
                        "thread": 1,
                        "name": "cudaLaunchKernel",
                        "start": begin + US,
                        "end": begin + 2 * US,
                        "correlation": number_of,
                    }
                )
                kernels.append(
                    kernel(start * US, end * US, name, rank, rank, correlation=number_of)
                )
    return job(*ranges, ranks=len(late), calls=calls, kernels=kernels)  # fmt: skip


def test_a_rank_that_computes_longer_is_told_by_its_kernels():
    made = on_gpus((0, 50))
    found = one(DETECTOR, made)
    assert "mostly for rank 1" in found.what
    assert "computing on the device" in found.what
    assert found.time == found.saving_most == 6 * 50 * US
    rows, factors = found.edit.kernels
    kernels = made.trace["kernels"]
    assert set(kernels["name"].gather(rows).cast(pl.String)) == {"gemm"}
    assert set(kernels["process"].gather(rows)) == {1}
    assert factors.tolist() == [pytest.approx(20 / 70)] * 6
    (row,) = made.advice().filter(pl.col("detector") == "uneven_ranks").rows(named=True)
    assert 0 <= row["saving"] <= 6 * 50 * US


def two_buckets(asleep, many=6):
    """Steps of 100 µs in which each rank reduces two buckets at once; the second rank sleeps before its own."""
    rows = []
    for number in range(many):
        at = 100 * number
        for rank in range(2):
            begin = at + 20 + (asleep if rank else 0)
            rows.append(step(number, at * US, (at + 100) * US, rank))
            rows.append(
                ranged((at + 1) * US, (at + 10) * US, "aten::mm(f32[8,8], f32[8,8])", process=rank)
            )
            for bucket in range(2):
                call, work = gloo_all_reduce(rank, (begin + bucket) * US, (at + 95 + bucket) * US)
                rows += [call, {**work, "thread": 2 + bucket, "end_thread": 2 + bucket}]
    return job(*rows, ranks=2)


def test_lateness_that_the_rank_s_steps_cannot_hold_is_said_as_it_is_and_not_as_a_part_of_them():
    worst = {"lateness": 900 * US, "median_lateness": 300.0 * US, "last": 3, "compared": 3}
    text = late_by(worst, 15 * US, 15 * US, 3)  # what it did between its steps took most
    assert "300 µs (median) later than the first rank (its own steps take 5 µs)" in text
    assert "of a step" not in text


def test_a_rank_that_is_late_to_two_collectives_in_flight_is_late_once():
    made = two_buckets(60)
    late = made.stragglers().row(0, named=True)
    assert (late["rank"], late["compared"]) == (1, 12)
    assert late["lateness"] == late["caused_waiting"] == 6 * 60 * US  # not 12 * 60
    row = made.diagnosis().row(0, named=True)
    assert (row["finding"], row["rank"], row["detector"]) == ("straggler", 1, "uneven_ranks")
    assert "60 µs of a step's 100 µs" in row["text"]
    assert row["share"] == pytest.approx(0.6)
    assert row["lost"] == 6 * 60 * US


def test_a_rank_that_sleeps_is_late_outside_any_op_and_not_for_a_launch():
    causes = two_buckets(60).late_causes()["cause"].drop_nulls().unique().to_list()
    assert causes == ["outside any op"]
