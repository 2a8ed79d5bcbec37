"""Steps that wait for a processor: by other processes, or by threads and workers of its own."""

from __future__ import annotations

import pytest

from opscope.core.advice.finding import CannotTell
from tests.core.advice.timeline import US, steady, step, training

MS = 1000 * US


def run(waits, own, children=0.0, machine=100.0):
    """Ten steps of 10 ms on two processors; ``waits``: of the first thread, others in percent of one."""
    values = {"waiting for a processor [%]": waits, "process CPU [%]": own, "machine CPU [%]": machine,
              "child processes CPU [%]": children, "processors": 2.0}  # fmt: skip
    samples = [
        {"process": 0, "time": at, "name": name, "value": value}
        for at in range(0, 110 * MS, 10 * MS)
        for name, value in values.items()
        if value is not None
    ]
    return training(steady(10, 10 * MS), samples=samples)


def busy():
    return run(waits=40.0, own=60.0)


#: What docs/advice.md shows: where the profile is from, and the profile.
EXAMPLE = ("made rows: a process on two processors that others use", busy)


def find(profile):
    from tests.core.advice.made_runs import find as asked

    return asked("starved", profile)


def test_others_that_take_the_processors_are_named_with_what_they_use():
    (found,) = find(busy())
    assert (found.time, found.saving_least, found.saving_most) == (40 * MS, 0, 40 * MS)
    assert found.saving is None  # no change of the program makes the machine idle
    assert "wait for a processor that other processes use: 40.0 ms of 100.0 ms" in found.what
    assert "this process uses 0.6, its child processes 0.0, others 1.4" in found.evidence


@pytest.mark.parametrize(("own", "children"), [(195.0, 0.0), (60.0, 138.0)])
def test_threads_and_workers_of_its_own_are_no_other_processes(own, children):
    (found,) = find(run(30.0, own, children))
    assert "its own threads and workers use" in found.what
    assert "fewer threads" in found.recommendation


@pytest.mark.parametrize(("later", "first"), [(80.0, True), (10.0, False)])
def test_a_long_starved_first_step_says_nothing_of_the_others(later, first):
    values = {"process CPU [%]": 20.0, "machine CPU [%]": 100.0, "processors": 2.0}
    samples = [
        {"process": 0, "time": at, "name": name, "value": value}
        for at in range(0, 410 * MS, 10 * MS)
        for name, value in {
            **values,
            "waiting for a processor [%]": 80.0 if at <= 300 * MS else later,
        }.items()
    ]
    steps = [step(0, 0, 300 * MS), *steady(10, 10 * MS, first=300 * MS)]
    (found,) = find(training(steps, samples=samples))
    assert found.stands_out == first


def test_a_busy_machine_starves_nobody_who_does_not_wait():
    assert find(run(waits=3.0, own=60.0)) == []


def test_without_the_samples_it_cannot_tell_and_says_what_others_used():
    answer = find(run(waits=None, own=60.0))
    assert isinstance(answer, CannotTell)
    assert "other processes used 1.4 of the 2 processors" in answer.reason
    assert "others" not in find(run(waits=None, own=60.0, machine=40.0)).reason


def test_the_first_row_of_the_diagnosis_says_that_the_run_was_starved():
    text = busy().diagnosis()["text"][0]
    assert "; but the steps wait for a processor that other processes use: 40.0 ms" in text
