"""The script that compares with Holistic Trace Analysis finds its questions, and explains no difference away."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "scripts" / "against_hta"


@pytest.fixture(scope="module")
def script():
    """The script's modules; they import each other by name, as they run in two interpreters."""
    names = ("compared", "found")
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)


def answers(error: str | None = None, **figures) -> dict:
    return {"figures": figures, "error": error}


def test_every_question_has_both_sides(script):
    found = script["found"].questions()
    assert {"idle_time", "queue_length", "overlap", "bandwidth"} <= set(found)
    for name, question in found.items():
        assert question.TITLE, name
        assert callable(question.ours), name
        assert callable(question.theirs), name


def test_an_unknown_question_is_refused(script):
    with pytest.raises(SystemExit, match="no question 'nonsense'"):
        script["found"].questions(["nonsense"])


class Question:
    WHY = {"bytes": lambda figure, mine, other: "rounded" if mine["bytes"] == 3 else None}  # noqa: RUF012


def rows(script, ours: dict, theirs: dict) -> dict:
    return {one.figure: one for one in script["compared"].compare("q", Question, ours, theirs)}


def test_figures_are_equal_up_to_a_rounding_of_ns(script):
    found = rows(
        script, answers(a=5.0, b=1e9, c=None, d=1), answers(a=5.001, b=1e9 + 1, c=None, d=1)
    )
    assert all(one.equal for one in found.values())


def test_a_difference_without_a_reason_is_unexplained(script):
    found = rows(script, answers(a=5.0, bytes=3), answers(a=5.1, bytes=4, more=1))
    assert found["a"].unexplained
    assert found["more"].unexplained  # a figure that only one side has
    assert (found["bytes"].unexplained, found["bytes"].why) == (False, "rounded")
    again = rows(script, answers(bytes=5), answers(bytes=4))
    assert again["bytes"].unexplained  # the reason does not hold here


def test_a_failure_of_the_peer_is_a_row(script):
    (row,) = rows(script, answers(a=1), answers("TypeError: no")).values()
    assert (row.theirs, row.equal) == ("TypeError: no", False)
