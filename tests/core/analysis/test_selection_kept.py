"""A profile keeps a few selections of itself, those used last."""

from __future__ import annotations

from opscope.profile.profile import PARTS_KEPT
from tests.core.analysis.test_diff import LONG, run


def test_the_selections_used_last_are_kept_and_no_more():
    profile = run(LONG * (PARTS_KEPT + 2))
    first = profile.select(steps=0)
    for step in range(1, PARTS_KEPT):
        profile.select(steps=step)
    assert profile.select(steps=0) is first
    for step in range(PARTS_KEPT, 2 * PARTS_KEPT - 1):
        profile.select(steps=step)
    assert len(profile._selections) == PARTS_KEPT
    assert profile.select(steps=0) is first, "it was used not long ago"
    for step in range(1, PARTS_KEPT + 1):
        profile.select(steps=step)
    assert profile.select(steps=0) is not first
    assert profile.select(steps=0).summary()["steps"].item() == 1
