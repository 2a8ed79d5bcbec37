"""The steps that detectors ask for: those of the step table, which is not made where no range is a step."""

from __future__ import annotations

import polars as pl
from polars.testing import assert_frame_equal

from opscope.core.advice.marked_steps import marked_steps
from opscope.core.analysis.steps.steps import table_of_steps
from tests.core.advice.made_runs import on_gpu, ran


def run(steps):
    rows = [ran(f"aten::op{at}", 10_000 * at + 4_000, 10_000 * at + 5_000) for at in range(4)]
    return on_gpu([row | ({"step": at // 2} if steps else {}) for at, row in enumerate(rows)])


def test_they_are_the_rows_of_the_step_table_that_have_a_number():
    profile = run(steps=True)
    found = marked_steps(profile)
    assert found["step"].to_list() == [0, 1]
    assert_frame_equal(found, profile.steps())


def test_without_steps_there_are_none_and_the_step_table_is_not_made():
    profile = run(steps=False)
    found = marked_steps(profile)
    assert not profile._has(table_of_steps)
    whole = profile.steps()
    assert whole["step"].to_list() == [None]
    assert_frame_equal(found, whole.filter(pl.col("step").is_not_null()))
