"""A few of the planted truths (``scripts/planted_truths.py`` has a hundred): the cause first, steps and phases exact.

The made traces are asked in this process; the programs are recorded where their framework is installed
(``tests/on_*/test_planted_truths.py``).
"""

from __future__ import annotations

import pytest

import opscope
from tests.planted_truths.made import PLANTED, make
from tests.planted_truths.truth import SAID, STARVED, Said, Truth, judge, said_of


@pytest.mark.parametrize("cause", PLANTED)
def test_the_planted_cause_is_said_first(cause, tmp_path):
    truth = make(cause, 0, tmp_path)
    judged = judge(truth, said_of(opscope.load([str(tmp_path / name) for name in truth.what])))
    assert judged.cause == "right"
    assert judged.steps in (True, None)
    assert judged.phases is None or judged.phases <= truth.within
    assert judged.late is None or judged.late <= 0.1


def test_a_truth_is_written_beside_its_trace_and_read_again(tmp_path):
    truth = make("late rank", 1, tmp_path)
    assert Truth.read(tmp_path / f"{truth.name}.truth.json").late == list(truth.late)
    assert len(truth.what) == truth.ranks == 4
    assert set(SAID) == {*PLANTED, STARVED}


def test_what_is_said_of_a_planted_cause_is_right_later_missed_or_false():
    truth = Truth("t", "casts", "trace", "kineto", 0, (), 9, {"forward": 90, "outside": 10})

    def judged(first, *findings, steps=9, phases=None):
        said = Said(
            first,
            "",
            [f"{name}: …" for name in (first, *findings)],
            steps,
            phases or {"forward": 90},
        )
        return judge(truth, said)

    assert judged("recomputed_casts", "host-bound").cause == "right"
    assert judged("host-bound", "recomputed_casts").cause == "later"
    assert judged("host-bound").cause == "missed"
    assert judged("healthy", "recomputed_casts").cause == "false"
    assert (judged("x").steps, judged("x", steps=8).steps) == (True, False)
    assert judged("x").phases == 0.1, "10 of 100 are missing"
    healthy = Truth("t", "healthy", "trace", "kineto", 0, (), None)
    assert judge(healthy, Said("host-bound", "", ["host-bound: …"], None)).cause == "false"
    assert judge(healthy, Said("cannot tell", "", ["cannot tell: …"], None)).cause == "missed"
