"""Evaluations: forward passes alone between the steps of a training."""

from __future__ import annotations

import polars as pl

from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import on_cpu

MS = 1_000_000
FORWARD = "aten::mm(f32[8,8], f32[8,8]) @train.py:{}"


def training(evaluated=30, way="forward", trains=True, epochs=2):
    """Epochs of four steps of 10 ms, each followed by ``evaluated`` ms of forward passes, then 5 ms of nothing."""
    rows, at, number = [], 0, 0
    for _ in range(epochs):
        for _ in range(4):
            rows.append(
                {"text": f"step {number}", "start": at, "end": at + 10 * MS, "category": "step"}
            )
            rows.append({"text": FORWARD.format(9), "start": at, "end": at + 4 * MS})
            if trains:
                rows.append({"text": FORWARD.format(10), "start": at + 4 * MS, "end": at + 9 * MS,
                             "category": "backward"})  # fmt: skip
            at, number = at + 10 * MS, number + 1
        for n in range(evaluated):
            rows.append({"text": FORWARD.format(15), "start": at + n * MS, "end": at + (n + 1) * MS,
                         "category": way})  # fmt: skip
        at += (evaluated + 5) * MS
    return on_cpu(rows)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: two epochs of four steps, each followed by an evaluation", training)


def find(profile):
    return asked("evaluation_share", profile)


def test_the_time_between_the_steps_in_which_forward_passes_run():
    (found,) = find(training())
    assert (found.time, found.saving_least, found.saving_most) == (60 * MS, 0, 60 * MS)
    assert (
        "2 evaluations between and after the steps: 60.0 ms, beside 80.0 ms of steps (42.9 %"
        in found.what
    )
    assert "train.py:15 (60 ops, 60.0 ms)" in found.evidence


def test_steps_of_two_threads_leave_as_much_time_between_them():
    profile = training()
    steps = profile.trace["ranges"].filter(pl.col("category") == "step")
    beside = steps.with_columns(pl.col("id") + 1_000, thread=pl.lit(2, pl.Int64))
    ranges = pl.concat([profile.trace["ranges"], beside])
    (found,) = find(Profile(profile.trace.replace(ranges=ranges)))
    assert found.time == 60 * MS


def test_short_evaluations_and_other_work_between_steps_are_none():
    assert find(training(evaluated=8)) == []
    assert find(training(way="optimizer")) == []
    assert find(training(evaluated=0)) == []


def test_without_steps_or_a_backward_pass_it_cannot_tell():
    assert isinstance(find(training(trains=False)), CannotTell)
    assert isinstance(find(on_cpu([{"text": FORWARD, "start": 0, "end": MS}])), CannotTell)
