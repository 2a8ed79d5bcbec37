"""A step drawn: each moment once, idle time in its phases, the step that is nearest to the median."""

from __future__ import annotations

import pytest

from opscope.profile import Profile
from opscope.viewer.step_picture import step_picture
from tests.viewer.made_training import made_training


@pytest.fixture(scope="module")
def training():
    return Profile(made_training(steps=5))


def test_each_moment_of_the_step_is_in_one_phase(training):
    picture = step_picture(training)
    program = picture["lanes"][0]
    assert sum(program["sums"].values()) == picture["time"]
    ends = 0
    for begin, end, _ in program["segments"]:
        assert ends <= begin < end <= picture["time"]
        ends = end


def test_busy_and_idle_time_add_up_and_idle_time_is_in_phases(training):
    picture = step_picture(training)
    lanes = picture["lanes"][1:]
    assert lanes
    kernels = training.kernels()
    for lane in lanes:
        assert lane["sums"]["busy"] + lane["idle"] == picture["time"]
        assert sum(lane["idle_in"].values()) == lane["idle"]
        # what is busy is busy by the kernels' own times
        device = int(lane["name"].removeprefix("device "))
        begin, end = int(picture["start"]), int(picture["end"])
        covered: set[tuple[int, int]] = set()
        for row in kernels.filter(process=picture["process"], device=device).to_dicts():
            low, high = max(begin, row["start"]), min(end, row["end"])
            if low < high:
                covered.add((low, high))
        last, busy = begin, 0
        for low, high in sorted(covered):
            busy += max(0, high - max(low, last))
            last = max(last, high)
        assert lane["sums"]["busy"] >= busy > 0


def test_the_step_is_the_nearest_to_the_median(training):
    picture = step_picture(training)
    steps = training.steps().filter(process=picture["process"])
    steady = steps.filter(~steps["warm_up"].fill_null(False))
    times = steady["time"] if len(steady) else steps["time"]
    assert abs(picture["time"] - times.median()) == (times - times.median()).abs().min()


def test_a_run_without_steps_is_drawn_in_its_phases(trace_of):
    place = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward"}
    rows = [{**place, "text": "aten::mm(f32[8,8], f32[8,8])", "start": n * 100, "end": n * 100 + 80} for n in range(3)]  # fmt: skip
    picture = step_picture(Profile(trace_of(ranges=rows)))
    assert picture["lanes"][0]["sums"] == {"forward": 240, "other": 40}


def test_without_steps_it_says_why(trace_of):
    picture = step_picture(Profile(trace_of(kernels=[{"name": "k", "start": 0, "end": 5}])))
    assert picture["lanes"] == []
    assert picture["why"]
