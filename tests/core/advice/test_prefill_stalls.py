"""Prefills that hold decoding requests up: mixed steps, and steps between decodes."""

from __future__ import annotations

from opscope.core.advice.detectors.prefill_stalls import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests.made_server import US, Step, served, serving


def _example() -> Profile:
    return Profile(served(serving()))


EXAMPLE = ("a made server that runs whole prefills between its decode steps", _example)


def test_prefills_between_decodes_are_what_it_is_about():
    (found,) = DETECTOR.find(_example())
    # of three prefills the first has no decode before it; the host adds 20 us to each step
    assert found.time == 2 * 5_020 * US
    assert found.saving_least == 0
    assert found.saving_most is None
    assert "2 prefill steps, 5.0 ms each where a decode takes 1.0 ms" in found.evidence


def test_mixed_steps_cost_what_they_take_beyond_a_decode():
    made = serving(1, 8)
    made.append(Step("execute_context_1(500)_generation_16(16)", 3_000 * US, tokens=516))
    made += serving(0, 0)
    (found,) = DETECTOR.find(Profile(served(made)))
    # the last step lasts until its range ends: 3,000 us, a decode 1,020 us
    assert found.time == (3_000 - 1_020) * US
    assert "1 mixed steps" in found.evidence


def test_short_mixed_steps_are_left_alone():
    made = serving(1, 20)
    made.append(Step("execute_context_1(50)_generation_16(16)", 1_100 * US, tokens=66))
    assert list(DETECTOR.find(Profile(served(made)))) == []


def test_it_cannot_tell_with_few_decodes():
    assert isinstance(DETECTOR.find(Profile(served(serving(1, 3)))), CannotTell)
