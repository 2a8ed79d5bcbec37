"""The description of lanes that the page gets before it draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .lane import CATEGORIES, STEPS

if TYPE_CHECKING:
    from .index import Timeline


def said(timeline: Timeline, part: str) -> dict[str, Any]:
    """Return the lanes of a part of the timeline, ``span`` (first start and last end in ns, as text; null
    without lanes), ``steps`` (the same of the steps alone) and the names of the categories by number.

    Of a lane: ``id``, ``kind``, ``process``, ``thread``, ``device``, ``stream``, ``group``,
    ``title``, ``levels``, ``slices``, and ``left``: how many slices lie too deep to be drawn.
    ``provisional`` is present, and true, while kernels have the categories of their names
    (``Lane``), until ``timeline_settled``.
    """
    lanes = timeline.part(part)
    spans = [lane.span for _, lane in lanes]
    span = None
    if spans:
        span = [str(min(low for low, _ in spans)), str(max(high for _, high in spans))]
    steps = [lane.span for _, lane in lanes if lane.about.kind == STEPS]
    provisional = any(lane.provisional for _, lane in lanes)
    return {
        **({"provisional": True} if provisional else {}),
        "span": span,
        "steps": [str(min(low for low, _ in steps)), str(max(high for _, high in steps))]
        if steps
        else None,
        "categories": list(CATEGORIES),
        "lanes": [
            {
                "id": lane_id,
                "kind": lane.about.kind,
                "process": lane.about.process,
                "thread": lane.about.thread,
                "device": lane.about.device,
                "stream": lane.about.stream,
                "group": lane.about.group,
                "title": lane.about.title,
                "levels": len(lane.strips),
                "slices": lane.slices,
                "left": len(lane.left.start),
            }
            for lane_id, lane in lanes
        ],
    }
