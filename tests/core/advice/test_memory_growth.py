"""Growing memory: steady growth by step, not caches that fill nor batches of several sizes; its line if known."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.advice.diagnosed import _answer
from opscope.core.advice.finding import CannotTell
from opscope.core.schema import PROCESS_MEMORY
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.core.advice.made_runs import find as asked
from tests.core.advice.made_runs import processes, spans

MS, MB = 1_000_000, 1_000_000


def run(resident=None, kept=None, steps=16, origin=None):
    """Steps of 10 ms. ``resident``: the process's memory as each begins [MB]; ``kept``: bytes that its op
    allocates and keeps, where each also allocates and releases a block."""
    rows, samples, changes = [], [], []
    for n in range(steps):
        at = 10 * MS * n
        rows += spans([{"text": f"step {n}", "start": at, "end": at + 10 * MS}], "step")
        rows += spans(
            [{"text": "aten::relu(f32[8]) @train.py:11", "start": at + MS, "end": at + 4 * MS}],
            "forward",
        )
        if resident is not None:
            value = float(resident(n) * MB)
            samples.append({"process": 0, "time": at + 1, "name": PROCESS_MEMORY, "value": value})
        if kept is not None:
            place = {"process": 0, "device": -1, "thread": 1}
            changes.append({**place, "time": at + 2 * MS, "address": 1000 + n, "bytes": kept(n)})
            changes.append({**place, "time": at + 3 * MS, "address": 5, "bytes": MB})
            changes.append({**place, "time": at + 9 * MS, "address": 5, "bytes": -MB})
    tables = {"ranges": pl.DataFrame(rows), "processes": processes("torch")}
    if samples:
        tables["samples"] = pl.DataFrame(samples)
    if changes:
        tables["allocations"] = pl.DataFrame(changes)
    return Profile(Trace.of(tables, origin or {}))


def leaking():
    return run(kept=lambda n: 2 * MB)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: an op in each of 16 steps allocates 2 MB that are kept", leaking)


def find(profile):
    return asked("memory_growth", profile)


def test_recorded_allocations_give_the_line_and_the_bytes_a_step():
    (found,) = find(leaking())
    assert "grows by 2 MB a step at train.py:11" in found.what
    assert found.confidence == "high"
    assert found.rows.select("op", "source", "count").row(0) == ("aten::relu", "train.py:11", 11)
    assert (found.saving_least, found.saving_most, found.saving) == (0, 0, 0)


def test_what_saves_no_time_has_no_share_of_it_on_the_first_screen():
    row = {"rank": None, "text": "it grows", "to_try": None, "share": 0.0, "of": "the wall time"}
    frame = pl.DataFrame([{**row, "finding": "starved", "share": 0.5}, {**row, "finding": "memory growth"}])  # fmt: skip
    assert _answer(frame, leaking())[-1] == "also: memory growth"


def test_without_them_the_process_grows_and_no_line_is_named():
    (found,) = find(run(resident=lambda n: 300 + 1.5 * n))
    assert "the process's memory grows by 1.5 MB a step: by" in found.what
    assert "--memory" in found.evidence
    assert found.confidence == "medium"


@pytest.mark.parametrize(
    "resident",
    [
        lambda n: 300,
        lambda n: 300 + 40 * (1 - 0.7**n),  # caches fill
        lambda n: 300 + 10 * (n % 4),  # batches of several sizes
        lambda n: 300 + (60 if n > 9 else 0),  # once
        lambda n: 300 + 0.2 * n,  # 3 MB in all
    ],
)
def test_what_fills_or_varies_does_not_grow(resident):
    assert find(run(resident=resident)) == []


def test_allocations_that_vary_with_the_batch_do_not_grow():
    assert find(run(kept=lambda n: MB if n < 3 else 8)) == []


def test_what_varies_as_much_as_it_grows_is_no_growth():
    """In each quarter of the steps more than in the one before, but far from a line."""
    up = [0, 60, 10, 5, 70, 20, 0, 80, 30, 10, 90, 40]
    assert find(run(resident=lambda n: 300 + up[max(n - 4, 0)])) == []


def test_it_cannot_tell_of_few_steps_or_without_memory():
    for profile in (run(), run(resident=lambda n: 300 + 9 * n, steps=8)):
        answer = find(profile)
        assert isinstance(answer, CannotTell)
        assert "opscope run --memory" in answer.reason


@pytest.mark.parametrize(("backend", "tells"), [("recorder", True), ("xplane", False)])
def test_what_a_profiler_keeps_in_the_process_is_not_the_programs(backend, tells):
    profile = run(lambda n: 300 + 4 * n, origin={"backends": [{"backend": backend}]})
    answer = find(profile)
    assert isinstance(answer, CannotTell) != tells
    assert tells or "(xplane) was kept in the process's memory" in answer.reason
