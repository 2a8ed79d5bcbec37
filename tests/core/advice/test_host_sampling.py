"""Logits copied to the host: found by the bytes for each request."""

from __future__ import annotations

from opscope.core.advice.detectors.host_sampling import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests.made_server import US, served, serving


def profile(nbytes: int) -> Profile:
    """A server that copies so many bytes to the host in each of its steps."""
    return Profile(served(serving(), copied=nbytes))


def _example() -> Profile:
    return profile(16 * 128_000 * 4)


EXAMPLE = ("a made server that copies the logits of 16 requests to the host", _example)


def test_logits_that_are_copied_are_what_it_is_about():
    (found,) = DETECTOR.find(_example())
    assert found.what.startswith("15 of 15 decode steps copy 8.19 MB to the host")
    assert found.time == 15 * 20 * US
    assert found.saving_most is None


def test_token_ids_are_left_alone():
    assert list(DETECTOR.find(profile(16 * 8))) == []


def test_it_cannot_tell_without_copies():
    assert isinstance(DETECTOR.find(Profile(served(serving()))), CannotTell)
