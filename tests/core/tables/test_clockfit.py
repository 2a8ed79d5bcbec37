"""Offset and drift come back within the width of the brackets, whatever delays fell into them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables.clockfit import ClockFit, fit, match

gaps = st.lists(
    st.tuples(
        st.integers(1_000_000, 2_000_000_000),  # to the next reading
        st.integers(0, 5_000),  # between our first read and the call
        st.integers(500, 20_000),  # the call
        st.integers(0, 5_000),  # between the call and our second read
    ),
    min_size=1,
    max_size=40,
)
offsets = st.integers(-(1 << 60), 1 << 60)
drifts = st.floats(-200e-6, 200e-6)
#: ns: the clocks part by 4 while a call of 20 µs lasts, and four times are rounded
CLOSE = 8


def readings(gaps: list[tuple[int, ...]], offset: int, drift: float) -> tuple[np.ndarray, ...]:
    """Brackets on our clock and the calls in them on another, which runs off by ``drift``."""
    gap, lead, call, trail = np.array(gaps, dtype=np.int64).T
    start = np.cumsum(gap) + 10**12
    end = start + call

    def ours(theirs: np.ndarray) -> np.ndarray:
        return theirs + offset + np.rint(drift * (theirs - start[0]).astype(float)).astype(np.int64)

    return ours(start) - lead, ours(end) + trail, start, end


@given(gaps, offsets, drifts)
def test_the_fit_is_within_every_brackets_width(
    gaps: list[tuple[int, ...]], offset: int, drift: float
) -> None:
    before, after, start, end = readings(gaps, offset, drift)
    fitted = fit(before, after, start, end)
    off_by = fitted.apply(start) - (
        start + offset + np.rint(drift * (start - start[0])).astype(np.int64)
    )
    width = (after - before) - (end - start)
    spread = int(start[-1] - start[0])
    if spread >= 10_000_000 or drift == 0:
        assert (np.abs(off_by) <= width + CLOSE).all()
        assert fitted.slack_ns >= -CLOSE
    else:  # too short to tell drift: it may show
        assert (np.abs(off_by) <= width + CLOSE + abs(drift) * spread).all()


@given(gaps, offsets, drifts, st.data())
def test_the_stated_error_holds_between_the_readings(
    gaps: list[tuple[int, ...]], offset: int, drift: float, data: st.DataObject
) -> None:
    before, after, start, end = readings(gaps, offset, drift)
    fitted = fit(before, after, start, end)
    spread = int(start[-1] - start[0])
    if spread < 10_000_000:
        return
    when = np.array([data.draw(st.integers(int(start[0]), int(start[-1])))])
    true = when + offset + np.rint(drift * (when - start[0])).astype(np.int64)
    assert abs(int((fitted.apply(when) - true)[0])) <= fitted.error_ns + CLOSE


def test_one_wide_bracket_among_tight_ones_does_no_harm() -> None:
    gaps = [(10**9, 300, 2_000, 300)] * 20
    tight = fit(*readings(gaps, 10**15, 3e-6))
    delayed = [*gaps[:7], (10**9, 40_000_000, 2_000, 300), *gaps[8:]]
    fitted = fit(*readings(delayed, 10**15, 3e-6))
    assert fitted.error_ns <= tight.error_ns + 4 <= 310
    assert fitted.drift == pytest.approx(3e-6, abs=5e-8)


def test_a_reading_taken_for_another_shows_as_no_room() -> None:
    before, after, start, end = readings([(10**9, 300, 2_000, 300)] * 5, 0, 0.0)
    before[2] += 1_000_000
    after[2] += 1_000_000
    assert fit(before, after, start, end).slack_ns < -100_000


def test_no_reading_is_refused() -> None:
    none = np.empty(0, dtype=np.int64)
    with pytest.raises(ValueError, match="no readings"):
        fit(none, none, none, none)
    assert match(none, none, none, none, 0, 1) is None


@given(
    gaps,
    st.integers(-(10**15), 10**15),
    drifts,
    st.integers(-20_000_000, 20_000_000),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 900_000)), max_size=20),
)
def test_probes_are_found_among_the_programs_own_calls(
    gaps: list[tuple[int, ...]],
    offset: int,
    drift: float,
    wrong_by: int,
    others: list[tuple[int, int]],
) -> None:
    before, after, start, end = readings(gaps, offset, min(max(drift, -1e-7), 1e-7))
    # calls of the program's own, clear of every probe and fewer than these: as many calls in the
    # very rhythm of the probes could not be told from them
    others = others[: (len(gaps) - 1) // 2]
    own = np.array([start[n % len(start)] - 50_000 - by for n, by in others], dtype=np.int64)
    calls = np.concatenate([start, own])
    order = np.argsort(calls, kind="stable")
    ends = np.concatenate([end, own + 700])[order]
    rows = match(before, after, calls[order], ends, offset + wrong_by, 50_000_000)
    if rows is None:  # these gaps may be even, when another assignment does as well
        return
    hit = rows >= 0
    if len(gaps) >= 3:
        assert hit.any()
        assert (calls[order][rows[hit]] == start[hit]).sum() * 2 >= hit.sum()
    if not others:
        assert (calls[order][rows[hit]] == start[hit]).all() or len(gaps) < 3


def test_times_keep_their_exactness_far_from_zero() -> None:
    clock = ClockFit(1_795_243_209_980_000_000, -1_795_240_000_000_000_000, 1e-6, 1, 1, 9)
    times = np.array([1_795_243_209_980_000_001, 1_795_243_210_980_000_001])
    assert clock.apply(times).tolist() == [3_209_980_000_001, 3_210_980_001_001]
