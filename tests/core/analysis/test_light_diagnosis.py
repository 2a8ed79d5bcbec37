"""What is wrong with a training is told in words, where the numbers show it, and only there."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from opscope.core.analysis.host.light_diagnosis import FINDINGS
from opscope.core.analysis.host.light_diagnosis import diagnosis as rows_of
from opscope.core.light_format import PHASES, STEP, WIDTH
from opscope.core.light_summary import Summary
from opscope.core.schema import PROCESS_MEMORY
from opscope.core.tables.trace import Trace, conform
from opscope.readers.recording.light import _blocks, _lengths, _steps, _whole

MS = 1_000_000


def training(*phases: dict[str, int], steps: int = 400, rank: int | None = None, **facts) -> Trace:
    """A training whose steps repeat ``phases`` (ns)."""
    rows = np.zeros((steps, WIDTH), np.int64)
    rows[:, 0] = rows[:, 2] = np.arange(steps)
    rows[:, 1] = STEP
    for place in range(steps):
        one = phases[place * len(phases) // steps]
        rows[place, 4] = sum(one.values())
        rows[place, 5:] = [one.get(name, 0) for name in PHASES[:5]]
    rows[:, 3] = np.concatenate([[0], np.cumsum(rows[:-1, 4])])
    summary = Summary()
    summary.add(rows)
    tables = {
        "light": _whole(summary, facts),
        "light_blocks": _blocks(summary),
        "light_lengths": _lengths(summary),
        "light_steps": _steps(summary),
        "processes": conform("processes", pl.DataFrame({"process": [0], "rank": [rank]})),
    }
    return Trace.of(tables)


def job(*traces: Trace) -> Trace:
    """The trainings as the ranks of one job."""
    tables = {}
    for name in traces[0].present:
        frames = [
            trace[name].with_columns(pl.lit(number, pl.Int32).alias("process"))
            for number, trace in enumerate(traces)
        ]
        tables[name] = pl.concat(frames)
    return Trace.of(tables)


def diagnosis(trace: Trace) -> pl.DataFrame:
    """The findings, else that there is none; and what cannot be told."""
    rows, otherwise, cannot_tell = rows_of(trace)
    known = [{name: row.get(name) for name in FINDINGS} for row in rows or [otherwise]]
    return pl.DataFrame(
        known + [{name: row.get(name) for name in FINDINGS} for row in cannot_tell], FINDINGS
    )


def found(trace: Trace) -> list[str]:
    return [name for name in diagnosis(trace)["finding"] if name != "cannot tell"]


EVEN = {"input": 1 * MS, "forward": 30 * MS, "backward": 60 * MS, "optimizer": 9 * MS}


def test_an_even_training_has_nothing_wrong_and_what_is_not_known_is_told():
    frame = diagnosis(training(EVEN))
    assert frame["finding"][0] == "nothing found"
    assert "which op" in frame.filter(pl.col("finding") == "cannot tell")["text"][0]


def test_waiting_for_input_is_told_with_its_share():
    frame = diagnosis(training({**EVEN, "input": 100 * MS}))
    row = frame.row(0, named=True)
    assert row["finding"] == "input-bound"
    assert row["share"] == pytest.approx(100 / 199)
    assert row["lost"] == 400 * 100 * MS


def test_uneven_steps_are_told_with_the_slowest_and_its_phase():
    pattern = [EVEN] * 9 + [{**EVEN, "input": 900 * MS}]
    frame = diagnosis(training(*(pattern * 40)))
    text = frame.filter(pl.col("finding") == "uneven steps")["text"][0]
    assert "40 of 400 steps" in text
    assert "waiting for input" in text


def test_a_slow_start_is_no_unevenness():
    assert found(training({**EVEN, "forward": 40_000 * MS}, *[EVEN] * 399)) == ["slow start"]


def test_steps_that_become_slower_are_told():
    phases = [{**EVEN, "forward": (30 + place) * MS} for place in range(400)]
    assert "steps become slower" in found(training(*phases))


def test_the_rank_that_the_others_wait_for_is_told_and_what_it_does():
    quick = training({**EVEN, "backward": 110 * MS}, rank=0)
    late = training({**EVEN, "input": 51 * MS}, rank=1)
    other = training({**EVEN, "backward": 110 * MS}, rank=2)
    frame = diagnosis(job(quick, late, other))
    (text,) = frame.filter(pl.col("finding") == "straggler")["text"]
    assert text.startswith("rank 1 is late")
    assert "waiting for input" in text


def test_ranks_that_are_equally_long_have_no_straggler():
    traces = [training(EVEN, rank=rank) for rank in range(3)]
    assert "straggler" not in found(job(*traces))


@pytest.mark.parametrize(("grows", "told"), [(4e6, True), (0, False)])
def test_memory_that_grows_all_the_time_is_told(grows, told):
    time = np.arange(0, 40_000 * MS, 100 * MS)
    noise = np.random.default_rng(0).normal(0, 5e6, len(time))
    samples = pl.DataFrame(
        {
            "process": 0,
            "time": time,
            "name": PROCESS_MEMORY,
            "value": 1e9 + noise + grows * np.arange(len(time)),
        },
        schema_overrides={"process": pl.Int32, "name": pl.Categorical},
    )
    trace = training(EVEN).replace(samples=conform("samples", samples))
    assert ("growing memory" in found(trace)) == told


def test_memory_that_grows_at_first_and_stays_is_not_told():
    time = np.arange(0, 40_000 * MS, 100 * MS)
    value = np.minimum(1e9 + 2e7 * np.arange(len(time)), 3e9)
    samples = pl.DataFrame(
        {"process": 0, "time": time, "name": PROCESS_MEMORY, "value": value},
        schema_overrides={"process": pl.Int32, "name": pl.Categorical},
    )
    assert "growing memory" not in found(
        training(EVEN).replace(samples=conform("samples", samples))
    )
