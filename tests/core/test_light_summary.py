"""What light mode keeps of all steps: exact sums and quantiles within 1 %, in memory that does not grow."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import light_summary
from opscope.core.light_format import FULL, PHASES, SAMPLE, STEP, WIDTH
from opscope.core.light_summary import Summary, Unreadable, quantile

MS = 1_000_000


def steps(took, begin: int = 0, kind: int = STEP, at: int = 0) -> np.ndarray:
    """Steps one after another, each with an eighth of its time in each phase but the last."""
    took = np.asarray(took, np.int64)
    rows = np.zeros((len(took), WIDTH), np.int64)
    rows[:, 0] = at + np.arange(len(took))
    rows[:, 1] = kind
    rows[:, 2] = rows[:, 0]
    rows[:, 3] = begin + np.concatenate([[0], np.cumsum(took)[:-1]]) if len(took) else 0
    rows[:, 4] = took
    rows[:, 5:] = took[:, None] // 8
    return rows


def sample(times, value, name: int = 0, device: int = -1, at: int = 0) -> np.ndarray:
    rows = np.zeros((len(times), WIDTH), np.int64)
    rows[:, 0] = at + np.arange(len(times))
    rows[:, 1] = SAMPLE
    rows[:, 2], rows[:, 3], rows[:, 4] = times, name, device
    rows[:, 5] = np.asarray(value, np.float64).view(np.int64)
    return rows


lengths = st.lists(st.integers(0, 10**11), min_size=1, max_size=300)


@given(lengths, st.lists(st.integers(0, 300), max_size=4))
def test_sums_are_exact_and_quantiles_within_one_percent_however_the_steps_come(took, cuts):
    rows, summary = steps(took), Summary()
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    for begin, end in pairwise(edges):
        summary.add(rows[begin:end])
    assert summary.steps == len(took)
    assert summary.totals[0] == sum(took)
    assert summary.totals[1:].sum() == sum(took)
    assert list(summary.totals[1:-1]) == [sum(one // 8 for one in took)] * (len(PHASES) - 1)
    for share in (0.5, 0.9, 0.99):
        exact = sorted(took)[max(1, int(np.ceil(share * len(took)))) - 1]
        assert quantile(summary.lengths[0], share) == pytest.approx(exact, rel=0.0101, abs=1)
    assert max(took) in summary.kept()[:, 4]


@given(lengths)
def test_what_is_read_is_what_was_written_and_records_are_added_once(took):
    rows, summary = steps(took), Summary()
    summary.add(rows)
    summary.add(sample([5, 6], [1.5, 2.5], name=3, device=1, at=len(rows)))
    read, facts = Summary.of(b"".join(summary.snapshot({"cost": [1, 2]})))
    assert facts == {"cost": [1, 2]}
    read.add(rows)  # the log of a process that was killed before it was emptied
    assert read.steps == summary.steps
    assert (read.totals == summary.totals).all()
    assert (read.lengths == summary.lengths).all()
    assert (read.kept() == summary.kept()).all()
    assert (read.series[3, 1].points == summary.series[3, 1].points).all()


def test_a_long_training_takes_no_more_memory_than_a_short_one(monkeypatch):
    monkeypatch.setattr(light_summary, "MAX_BLOCKS", 64)
    monkeypatch.setattr(light_summary, "EVEN", 128)
    monkeypatch.setattr(light_summary, "MAX_POINTS", 64)
    summary, sizes, begin, total = Summary(), [], 0, 0
    for hour in range(60):
        took = np.full(2_000, (100 + hour) * MS)
        at = summary.records
        summary.add(steps(took, begin, at=at))
        times = begin + np.arange(0, int(took.sum()), 1_000 * MS)
        summary.add(sample(times, np.full(len(times), float(hour)), at=summary.records))
        begin, total = begin + int(took.sum()), total + int(took.sum())
        sizes.append(len(b"".join(summary.snapshot({}))))
    assert summary.steps == 120_000
    assert summary.totals[0] == total
    assert max(sizes[5:]) < 1.3 * sizes[5]
    # the course of the training is still in the blocks, and that of the samples in the points
    mean = summary.blocks[:, 5] / summary.blocks[:, 2]
    assert (np.diff(mean) >= 0).all()
    assert mean[-1] - mean[0] > 55 * MS
    assert summary.series[0, -1].points[-1, 5] == 59


def test_a_snapshot_is_written_without_a_copy_of_what_is_kept(tmp_path):
    summary = Summary()
    summary.add(steps(np.full(5_000, 1_000 * MS)))
    tracemalloc.start()
    with (tmp_path / "snapshot").open("wb") as file:
        file.writelines(summary.snapshot({}))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < (tmp_path / "snapshot").stat().st_size / 4


def test_steps_that_were_recorded_in_full_are_kept_apart_from_the_sums():
    summary = Summary()
    summary.add(steps([10] * 5))
    summary.add(steps([900] * 2, 50, FULL, at=5))
    summary.add(steps([10] * 5, 2000, at=7))
    assert (summary.steps, summary.full) == (10, 2)
    assert summary.totals[0] == 100
    assert list(summary.kept()[:, 1]).count(FULL) == 2


@pytest.mark.parametrize("cut", [0, 5, 20, 200, -8])
def test_a_damaged_snapshot_is_refused(cut):
    summary = Summary()
    summary.add(steps([10] * 50))
    with pytest.raises(Unreadable):
        Summary.of(b"".join(summary.snapshot({}))[:cut])


def test_a_snapshot_of_a_later_version_is_refused():
    data = bytearray(b"".join(Summary().snapshot({})))
    data[8] = 2
    with pytest.raises(Unreadable, match="version 2"):
        Summary.of(bytes(data))


def test_sums_stay_in_the_memory_they_have_when_their_stretches_double():
    """New arrays for each step let a process's memory swing."""
    summary, rows = Summary(), steps([1000 * MS] * 40)
    rooms = set()
    for round_ in range(3 * light_summary.MAX_BLOCKS // 40):
        begin, at = round_ * 40_000 * MS, 80 * round_
        rows[:, 0], rows[:, 3] = at + np.arange(40), begin + 1000 * MS * np.arange(40)
        summary.add(rows)
        summary.add(sample(rows[:, 3], [1.0] * 40, at=at + 40))
        points = summary.series[0, -1].points
        rooms.add(tuple(array.ctypes.data for array in (summary.blocks, summary.even, points)))
    assert summary.block_ns > light_summary.BLOCK_NS
    assert len(rooms) == 1
    assert summary.totals[0] == summary.steps * 1000 * MS
