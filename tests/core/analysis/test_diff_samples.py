"""What a difference takes for one observation, and what it makes of light mode's profiles."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.analysis.diff.gate import held, parse
from opscope.core.analysis.diff.samples import means, sampled
from opscope.core.light_format import PHASES
from opscope.core.schema import INPUT_DOMAIN
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile
from opscope.profile.difference import difference_of

MS = 1_000_000


def units(*rows: tuple[int, int | None]) -> pl.DataFrame:
    return pl.DataFrame(
        [(process, step, 0, 10) for process, step in rows],
        schema={"process": pl.Int32, "step": pl.Int64, "start": pl.Int64, "end": pl.Int64},
        orient="row",
    )


def test_the_ranks_of_a_step_are_one_observation_and_repeated_numbers_are_not():
    one = sampled(units((0, 1), (0, 2), (0, 1)))
    assert one["sample"].to_list() == [0, 1, 2]
    both = sampled(units((0, 1), (0, 2), (0, 1), (1, 1), (1, 2), (1, 1)))
    assert both["sample"].to_list() == [*both["sample"].to_list()[3:]] * 2
    assert both["sample"].n_unique() == 3
    values = pl.DataFrame({"group": [0] * 6, "unit": range(6), "time": [10, 20, 30, 0, 40, 10]})
    found, many = means(values, both)
    assert many == 3
    assert sorted(found["time"]) == [5.0, 20.0, 30.0]


# ------------------------------------------------------------------------- a wait before the step


def a_run(wait: int) -> Profile:
    """Steps of 10 ms, before each of which the program waits for its loader."""
    where = {"process": 0, "thread": 1, "end_thread": 1, "kind": "pushpop"}
    ranges = []
    for step in range(6):
        at = step * 100 * MS + 50 * MS
        ranges.append(
            {**where, "start": at - wait, "end": at, "domain": INPUT_DOMAIN, "category": "input",
             "text": f"DataLoader() {{workers={wait}}} @train.py:{wait % 97}"}
        )  # fmt: skip
        ranges.append({**where, "start": at, "end": at + 10 * MS, "domain": "opscope.step",
                       "category": "step", "text": f"step {step}"})  # fmt: skip
    schema = table_schema("ranges")
    return Profile(
        Trace.of({"ranges": pl.DataFrame(ranges, schema={k: schema[k] for k in ranges[0]})})
    )


def test_a_step_begins_with_the_wait_for_its_batch_and_a_loader_is_one_though_its_text_changes():
    found = difference_of(a_run(2 * MS), a_run(9 * MS))
    assert found.step.select("a", "b").row(0) == (12 * MS, 19 * MS)
    loader = found.parts.filter(pl.col("part") == "data loader").row(0, named=True)
    assert (loader["a"], loader["b"]) == (2 * MS, 9 * MS)
    cause = found.causes.row(0, named=True)
    assert (cause["op"], cause["a"], cause["b"]) == ("DataLoader", 2 * MS, 9 * MS)


# -------------------------------------------------------------------------------- light mode


def light(lengths: list[int], kept: int, backward: int = 2 * MS) -> Profile:
    """A training in light mode: in each step what ``backward`` leaves is the input. ``kept`` steps are kept."""
    rows, at = [], 0
    for step, length in enumerate(lengths):
        phases = {**dict.fromkeys(PHASES, 0), "backward": backward, "input": length - backward - 7}
        rows.append({"process": 0, "step": step, "start": at, "end": at + length, "duration": length,
                     **phases, "other": 7, "full": False})  # fmt: skip
        at += length
    steps = pl.DataFrame(rows)
    whole = ("duration", *PHASES)
    blocks = steps.group_by(pl.int_range(pl.len()) // 5, maintain_order=True).agg(
        pl.col("process").first(), pl.col("step").first().alias("first_step"),
        pl.len().cast(pl.Int64).alias("steps"), pl.col("start").first(), pl.col("end").last(),
        pl.col(whole).sum(), pl.col("duration").max().alias("longest"),
    ).drop("literal", strict=False)  # fmt: skip
    tables = {
        "light_steps": steps.head(kept),
        "light_blocks": blocks.drop([n for n in blocks.columns if n not in table_schema("light_blocks")]),
        "light": pl.DataFrame({"process": [0], "steps": [len(rows)], "full_steps": [0]}),
        "processes": pl.DataFrame({"process": [0], "framework": ["torch"]}),
    }  # fmt: skip
    made = {
        name: table.cast({k: v for k, v in table_schema(name).items() if k in table.columns})
        for name, table in tables.items()
    }
    return Profile(Trace.of(made))


FAST = [10 * MS + n % 7 for n in range(30)]
SLOW = [15 * MS + n % 5 for n in range(30)]


@pytest.mark.parametrize("kept", [30, 3])
def test_light_runs_differ_by_phase_in_exact_sums_of_all_steps(kept):
    found = difference_of(light(FAST, kept), light(SLOW, kept, 3 * MS))
    step = found.step.row(0, named=True)
    assert (step["a"], step["b"]) == (sum(FAST) // 30, sum(SLOW) // 30)
    assert (step["steps_a"], step["verdict"]) == (30, "slower")
    for column in ("a", "b", "change"):
        assert found.parts[column].sum() == found.causes[column].sum() == step[column]
    assert found.parts["part"][0] == "input"
    changes = dict(found.parts.select("part", "change").iter_rows())
    assert changes["backward"] == MS
    assert changes["forward"] is None, "none was seen: it is not known"
    assert found.ops.is_empty()
    assert held(parse("part:input>30%"), found).failed
    assert not held(parse("step>60%"), found).failed


def test_of_a_light_run_and_another_only_the_loader_is_told_apart():
    found = difference_of(light(FAST, 30), a_run(9 * MS))
    assert found.told.startswith("A is of light mode")
    step = found.step.row(0, named=True)
    assert (step["a"], step["b"]) == (sum(FAST) // 30, 19 * MS)
    for column in ("a", "b", "change"):
        assert found.parts[column].sum() == step[column]
    loader = found.parts.filter(pl.col("part") == "data loader").row(0, named=True)
    assert loader["a"] == sum(FAST) // 30 - 2 * MS - 7
    assert loader["verdict"] == "slower"
