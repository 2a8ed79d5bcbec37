"""Attention over a cache far from its roof: by the lengths that the steps tell."""

from __future__ import annotations

from opscope.core.advice.detectors.cached_attention import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests.made_server import ATTENTION, PRODUCT, US, Step, served


def steps(attention: int, keys: int = 800_000) -> list[Step]:
    name = f"execute_16_context_0(sq0sk0sqsq0sqsk0)_generation_16(sq16sk{keys}sqsq16sqsk{keys})"
    work = ((PRODUCT, 100 * US), (ATTENTION, attention))
    return [Step(name, 2_000 * US, work=work) for _ in range(8)]


def _example() -> Profile:
    return Profile(served(steps(1_000 * US)))


EXAMPLE = ("a made server whose attention takes 1 ms to read 410 MB of its cache", _example)


def test_attention_far_from_its_roof_is_what_it_is_about():
    (found,) = DETECTOR.find(_example())
    assert found.time == 8 * 1_000 * US
    # 2 heads, keys and values of 64 elements of 2 bytes: 512 bytes a cached token, at 3.35 TB/s
    read = 800_000 * 512
    ideal = found.time - found.saving_most
    assert 8 * read / 3.36e12 * 1e9 < ideal < 8 * (read + 50_000) / 3.34e12 * 1e9
    assert "vllm::unified_attention_with_output" in found.evidence


def test_attention_near_its_roof_is_left_alone():
    assert list(DETECTOR.find(Profile(served(steps(200 * US))))) == []


def test_it_cannot_tell_without_lengths():
    made = [Step("execute_context_0(0)_generation_16(16)", 2_000 * US) for _ in range(8)]
    assert isinstance(DETECTOR.find(Profile(served(made))), CannotTell)
