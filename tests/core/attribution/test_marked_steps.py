"""A marked step ends where its ops show it if the program left its loop, and nowhere else."""

from __future__ import annotations

import pytest

from opscope.core.attribution.order import MARKS_LATE
from opscope.core.schema import READ_DOMAIN
from opscope.profile import Profile
from tests.core.attribution.test_step_bodies import EVALUATION, program, words_of_steps

STEP = "-load L f1 b1 o"
LOGS = f"{STEP} -print"
EVALUATED = f"{STEP} {EVALUATION}"
SAVED = f"{LOGS} S"


def steps_of(trace_of, steps: list[str], after: str = "") -> tuple[list[str], list[str]]:
    """The events of each step of a program that marks the begin of each of ``steps``, and the notes."""
    profile = Profile(
        trace_of(ranges=program(f"-init {' '.join('| ' + s for s in steps)} {after}"))
    )
    words = [step.replace(" -", " ") for step in words_of_steps(profile)]
    return words, profile.notes()["what"].to_list()


def words(*steps: str) -> list[str]:
    return [step.replace("-", "") for step in steps]


@pytest.mark.parametrize(
    ("steps", "after", "ends"),
    [
        ([STEP] * 4, "", [STEP] * 4),
        ([STEP] * 4, f"{EVALUATION} S", [STEP] * 4),
        ([STEP, LOGS, STEP, LOGS], EVALUATION, [STEP, LOGS, STEP, LOGS]),
        ([STEP, LOGS, STEP, STEP], EVALUATION, [STEP, LOGS, STEP, STEP]),
        (["L -print"] * 4, "-print", ["L -print"] * 4),  # nothing is trained
        # ops that no other step has: the optimizer shows the end
        ([STEP, STEP, "-load L f2 f3 b3 b2 o"], "L", [STEP, STEP, "-load L f2 f3 b3 b2 o"]),
        # between two marks
        ([STEP, LOGS, EVALUATED, STEP, SAVED, STEP], "", [STEP, LOGS, STEP, STEP, LOGS, STEP]),
        ([EVALUATED] * 4, EVALUATION, [EVALUATED] * 4),  # each step evaluates: it is its own
    ],
)
def test_a_step_ends_where_the_program_left_its_loop(trace_of, steps, after, ends):
    events, notes = steps_of(trace_of, steps, after)
    assert events == words(*ends)
    assert MARKS_LATE in notes


@pytest.mark.parametrize(
    ("steps", "after"),
    [
        ([STEP] * 3 + ["-load L f1"], ""),  # the program left the loop in its middle
        ([STEP] * 3 + ["-save"], EVALUATION),  # the last mark follows the loop
        ([STEP] * 2, ""),  # a single step shows no habit
        (["L -a", "-b L", "L -c L", "-d L L"], ""),
    ],
)
def test_a_last_step_without_evidence_has_no_end(trace_of, steps, after):
    events, notes = steps_of(trace_of, steps, after)
    assert events == words(*steps[:-1])
    assert MARKS_LATE not in notes


def test_a_mark_that_comes_in_time_ends_its_step(trace_of):
    steps = [STEP, LOGS, f"{STEP} -print -other", STEP]
    events, _ = steps_of(trace_of, [*steps, "-save"])
    assert events == words(*steps)


def test_a_last_step_waits_for_the_results_that_the_others_read(trace_of):
    """The call of a compiled function returns before its work is done."""
    rows = program("| -call -read " * 4 + "-other")
    for row in rows:
        if row["text"] == "x::call(f32[4])":
            row |= {"category": "graph", "text": "jit_step"}
        elif row["text"] == "x::read(f32[4])":
            row |= {"domain": READ_DOMAIN, "category": None, "text": "float(f32[])"}
    reads = [row for row in rows if row["domain"] == READ_DOMAIN]
    steps = Profile(trace_of(ranges=rows)).steps()
    begun = max(row["start"] for row in rows if row["text"].startswith("step"))
    assert steps["time"].to_list()[-1] == reads[-1]["end"] - begun


def test_a_read_that_other_steps_lack_is_no_part_of_the_last(trace_of):
    rows = program("| -call " * 4 + "-read")
    rows[-2] |= {"domain": READ_DOMAIN, "category": None, "text": "float(f32[])"}
    steps = Profile(trace_of(ranges=rows)).steps()
    assert steps["time"].to_list() == [13, 13, 13, 10]
