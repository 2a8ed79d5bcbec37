"""The whole timeline as typed arrays, for a page without a server: at most 60,000 slices.

The form is that of ``window``; every strip is in the mode ``rows``. The header also has the answer to the
question ``timeline_lanes`` (``lanes``, with ``id`` and ``strips``), ``names``: the names by number, and
``left``: slices that are left out and their time (ns). Of a longer timeline the longest slices are kept.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .index import DEVICE, HOST, Timeline
from .lanes_said import said
from .strip import Strip
from .window import Buffers

#: Number of slices that are packed.
MOST: Final = 60_000
#: Characters of a name.
_LONGEST: Final = 200


def whole(timeline: Timeline, most: int = MOST) -> bytes:
    """Return the complete timeline; if it has more than ``most`` slices, only the longest."""
    timeline.settle()
    lanes = timeline.all_lanes()
    strips = [strip for _, lane in lanes for strip in lane.strips]
    least = _least(strips, most)
    spans = [lane.span for _, lane in lanes]
    low = min((low_edge for low_edge, _ in spans), default=0)
    high = max((high_edge for _, high_edge in spans), default=0)
    buffers = Buffers()
    lanes_told: list[dict[str, Any]] = []
    left = left_time = 0
    used: dict[int, int] = {}
    room = most
    for lane_id, lane in lanes:
        parts = []
        for strip in lane.strips:
            lasted = np.diff(strip.before)
            rows = np.flatnonzero(lasted >= least)[:room]
            room -= len(rows)
            left += len(strip) - len(rows)
            left_time += int(strip.before[-1] - lasted[rows].sum())
            start = strip.start[rows] - low
            wide = len(rows) > 0 and int((start + lasted[rows]).max()) >= 1 << 31
            for times in (start, lasted[rows]):
                buffers.add(times, "<f8" if wide else "<i4")
            names = [
                used.setdefault(name_number, len(used)) for name_number in strip.name[rows].tolist()
            ]
            buffers.add(np.array(names, np.uint32), "<u4")
            buffers.add(strip.kind[rows], "u1")
            parts.append(
                {"mode": "rows", "first": 0, "many": len(rows), "busy": 0, "wide": bool(wide)}
            )
        left += len(lane.left.start)
        left_time += int((lane.left.end - lane.left.start).sum())
        lanes_told.append({"id": lane_id, "strips": parts})
    header = {
        "start": str(low),
        "span": max(1, high - low),
        "columns": 0,
        "lanes": lanes_told,
        "said": [said(timeline, part) for part in (HOST, DEVICE)],
        "names": [timeline.names[name_number][:_LONGEST] for name_number in used],
        "left": {"slices": left, "time": left_time},
    }
    return buffers.under(header)


def _least(strips: list[Strip], most: int) -> int:
    """Return the duration of the shortest slice that is kept."""
    if sum(map(len, strips)) <= most:
        return 0
    lasted = np.concatenate([np.diff(strip.before) for strip in strips])
    return int(np.partition(lasted, len(lasted) - most)[len(lasted) - most])
