"""What the processors did: samples hold from the one before, and are weighted by how long."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.host.cpu_utilization import FEW, NO_SAMPLES, OUTSIDE, Held
from opscope.core.schema import MACHINE_CPU, PROCESS_CPU, PROCESS_MEMORY, PROCESSORS
from opscope.profile import Profile


def sample(time: int, name: str, value: float | None, process: int = 0) -> dict:
    return {"process": process, "time": time, "name": name, "value": value}


def curve(*points: tuple[int, float | None], process: int = 0) -> list[dict]:
    """Samples of the process; the machine has a quarter of them."""
    return [one for time, value in points for one in (
        sample(time, PROCESS_CPU, value, process),
        sample(time, MACHINE_CPU, None if value is None else value / 4, process),
    )]  # fmt: skip


def op(name: str, start: int, end: int, thread: int = 1) -> dict:
    return {"process": 0, "thread": thread, "domain": "opscope.torch", "category": "forward",
            "kind": "pushpop", "text": f"{name}()", "start": start, "end": end}  # fmt: skip


def step(number: int, start: int, end: int) -> dict:
    return {"process": 0, "thread": 1, "domain": "opscope.step", "category": "step", "kind": "pushpop",
            "text": f"step {number}", "start": start, "end": end}  # fmt: skip


def test_the_mean_weights_each_sample_by_the_time_in_which_it_holds(trace_of):
    points = curve((0, None), (100, 100.0), (400, 200.0))
    extra = [
        sample(0, PROCESSORS, 4.0),
        sample(100, PROCESS_MEMORY, 5e6),
        sample(400, PROCESS_MEMORY, 3e6),
    ]
    row = Profile(trace_of(ranges=[], samples=points + extra)).cpu_utilization().row(0, named=True)
    assert row["cores"] == pytest.approx((100 * 1 + 300 * 2) / 400)
    assert row["machine"] == pytest.approx(row["cores"] / 4)
    assert row["process_share"] == pytest.approx(row["cores"] / 4)
    assert (row["cores_max"], row["samples"], row["sampled_time"]) == (2.0, 2, 400)
    assert (row["processors"], row["peak_process_memory"]) == (4, 5_000_000)


def test_the_time_between_two_recordings_is_in_no_sample(trace_of):
    points = curve((0, None), (100, 100.0), (5000, None), (5100, 50.0))
    row = Profile(trace_of(ranges=[], samples=points)).cpu_utilization().row(0, named=True)
    assert row["sampled_time"] == 200
    assert row["cores"] == pytest.approx(0.75)


def test_a_step_has_the_mean_of_the_samples_that_hold_in_it(trace_of):
    trace = trace_of(
        ranges=[step(0, 50, 150), step(1, 110, 120), step(2, 900, 950)],
        samples=curve((0, None), (100, 100.0), (200, 0.0)),
    )
    rows = Profile(trace).cpu_by_step().select("samples", "cores", "reason").rows()
    assert rows == [(2, 0.5, None), (1, 0.0, None), (0, None, NO_SAMPLES)]


def test_an_op_has_the_samples_whose_middle_it_holds_if_there_are_three(trace_of):
    points = [(0, None)] + [(100 * n, 100.0 if n <= 4 else 0.0) for n in range(1, 9)]
    trace = trace_of(
        ranges=[
            op("busy", 0, 420),
            op("short", 440, 460),
            op("outer", 600, 790),
            op("inner", 610, 780),
        ],
        samples=curve(*points),
    )
    rows = Profile(trace).cpu_by_op().select("op", "samples", "cores", "machine", "reason").rows()
    assert rows == [
        ("busy", 4, 1.0, 0.25, None),
        ("inner", 2, None, None, FEW),
        ("short", 1, None, None, FEW),
        (None, 1, None, None, FEW),
    ]


def test_samples_outside_any_op_have_a_row_of_their_own(trace_of):
    points = [(0, None)] + [(100 * n, 50.0) for n in range(1, 6)]
    trace = trace_of(ranges=[op("late", 1000, 1100)], samples=curve(*points))
    assert Profile(trace).cpu_by_op().select("op", "samples", "cores", "reason").rows() == [
        (None, 5, 0.5, OUTSIDE)
    ]


def test_without_samples_every_answer_is_empty_or_says_so(trace_of):
    profile = Profile(trace_of(ranges=[op("mm", 0, 10), step(0, 0, 20)]))
    assert profile.cpu_utilization().is_empty()
    assert profile.cpu_samples().is_empty()
    assert profile.cpu_by_op().is_empty()
    assert profile.cpu_by_step().row(0, named=True)["reason"] == NO_SAMPLES


def test_processes_are_sampled_apart(trace_of):
    points = curve((0, None), (10, 100.0)) + curve((0, None), (20, 300.0), process=1)
    profile = Profile(trace_of(ranges=[], samples=points))
    assert profile.cpu_utilization().select("process", "cores").rows() == [(0, 1.0), (1, 3.0)]
    assert profile.cpu_samples().select("process", "start", "end", "cores", "machine").rows() == [
        (0, 0, 10, 1.0, 0.25), (1, 0, 20, 3.0, 0.75)]  # fmt: skip


points = st.lists(
    st.tuples(st.integers(1, 50), st.one_of(st.none(), st.integers(0, 400))),
    min_size=1,
    max_size=30,
)


@given(points, st.integers(-20, 400), st.integers(0, 300))
def test_a_mean_is_that_of_the_nanoseconds_of_the_interval(steps, low, length):
    time = np.cumsum([gap for gap, _ in steps]).astype(np.int64)
    value = np.array([np.nan if one is None else float(one) for _, one in steps])
    each = {
        t: value[n]
        for n in range(1, len(time))
        if not np.isnan(value[n])
        for t in range(time[n - 1], time[n])
    }
    inside = [each[t] for t in range(low, low + length) if t in each]
    mean, many = Held(time, value).mean(np.array([low]), np.array([low + length]))
    assert bool(inside) == (not np.isnan(mean[0])) == bool(many[0])
    if inside:
        assert mean[0] == pytest.approx(sum(inside) / len(inside))
