"""The device waits between decode steps: found where requests go on, not where a server is idle."""

from __future__ import annotations

from opscope.core.advice.detectors.late_scheduler import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests.made_server import US, Step, served, serving


def steps(after: int, count: int = 10) -> list[Step]:
    made = serving(1, count)
    for step in made[1:]:
        step.after, step.between = after, "scheduler.get_next_batch_to_run"
    return made


def _example() -> Profile:
    return Profile(served(steps(400 * US)))


EXAMPLE = ("a made server whose scheduler takes 0.4 ms between steps of 1 ms", _example)


def test_waits_between_decode_steps_are_what_it_is_about():
    (found,) = DETECTOR.find(_example())
    # after each of the ten decodes but the last, which none follows
    assert found.time == found.saving_most == 9 * 400 * US
    assert "scheduler.get_next_batch_to_run" in found.evidence


def test_short_gaps_are_left_alone():
    assert list(DETECTOR.find(Profile(served(steps(20 * US))))) == []


def test_a_server_without_requests_waits_for_nothing_of_its_own():
    """Decodes end, and much later another prefill comes."""
    made = [*serving(1, 6), *serving(1, 6)]
    made[6].after = 50_000 * US
    assert list(DETECTOR.find(Profile(served(made)))) == []


def test_it_cannot_tell_without_engine_steps():
    assert isinstance(DETECTOR.find(Profile(served([Step(None)] * 8))), CannotTell)
