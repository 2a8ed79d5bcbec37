"""Padded decode batches: found by the sizes that names tell."""

from __future__ import annotations

from opscope.core.advice.detectors.graph_padding import DETECTOR
from opscope.core.advice.finding import CannotTell
from opscope.profile import Profile
from tests.made_server import US, Step, served


def steps(requests: int, padded: int | None, count: int = 8) -> list[Step]:
    size = f"{requests}/{padded}" if padded else f"{requests}"
    name = f"decode[bs={size} tok={requests} d={requests}]"
    return [Step(name, 1_000 * US, tokens=padded or requests) for _ in range(count)]


def _example() -> Profile:
    return Profile(served(steps(20, 32)))


EXAMPLE = ("a made server whose batches of 20 run in graphs of 32", _example)


def test_rows_that_nobody_asked_for_are_what_it_is_about():
    (found,) = DETECTOR.find(_example())
    assert found.what.startswith("37.5 % of the rows")
    assert "20 as 32 (8 steps)" in found.evidence
    # 12 of 32 rows of the 300 us of each of eight steps
    assert found.saving_most == 8 * 300 * US * 12 // 32
    assert found.saving_least == 0


def test_little_padding_is_left_alone():
    assert list(DETECTOR.find(Profile(served(steps(31, 32))))) == []


def test_it_cannot_tell_where_no_name_tells_the_size():
    assert isinstance(DETECTOR.find(Profile(served(steps(20, None)))), CannotTell)
