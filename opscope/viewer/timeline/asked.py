"""The parameters that questions about the timeline share."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.viewer.question import Asked, BadParameter

from .index import Timeline, timeline_of
from .lane import Lane

#: Bounds of a time (ns), and of the numbers of lanes, strips and columns.
_TIME: Final = 1 << 62
_LANES: Final = 500
_COLUMNS: Final = 4_096


def timeline(asked: Asked) -> Timeline:
    """Return the timeline of the selected part; an empty one for a merged job, which has no events."""
    profile = asked.profile
    if profile.merged_of is not None:
        profile = asked.viewed.tables.get("no events", lambda: Profile(Trace.of({})))
    return timeline_of(profile)


def lane_names(asked: Asked) -> str:
    """Return ``lanes`` as given; "" means all."""
    return asked.text("lanes", "", most=10 * _LANES)


def lanes(asked: Asked) -> list[tuple[str, Lane]]:
    """Return the lanes that ``lanes`` names (``d0,h3``), or all if it is empty; ``h3:2``: its first two
    strips."""
    timeline_asked = timeline(asked)
    ids = lane_names(asked)
    if not ids:
        return timeline_asked.all_lanes()
    wanted = ids.split(",")
    if len(wanted) > _LANES:
        raise BadParameter(f"lanes names {len(wanted):,}; at most {_LANES} are answered at once")
    return [_lane(timeline_asked, lane_id) for lane_id in wanted]


def _lane(timeline: Timeline, wanted: str) -> tuple[str, Lane]:
    lane_id, colon, levels = wanted.partition(":")
    lane = timeline.lane(lane_id)
    if not colon:
        return lane_id, lane
    if not (levels.isascii() and levels.isdigit() and len(levels) < 4):
        raise BadParameter(
            f"lanes has {wanted[:20]!r}; after a colon comes the number of its strips"
        )
    return lane_id, replace(lane, strips=lane.strips[: int(levels)])


def window(asked: Asked) -> tuple[int, int]:
    """Return ``start`` and ``end`` in ns."""
    low = asked.number("start", least=-_TIME, most=_TIME)
    high = asked.number("end", least=-_TIME, most=_TIME)
    if high <= low:
        raise BadParameter(f"end is {high}; it must be after start, {low}")
    return low, high


def columns(asked: Asked) -> int:
    """Return ``columns``, the width of the picture."""
    return asked.number("columns", 1_200, least=1, most=_COLUMNS)
