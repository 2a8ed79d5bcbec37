"""Find slices by their names, and add up the slices of a span."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from opscope.core.tables.intervals import Ints, union_length

from .index import Timeline
from .lane import CATEGORIES, Lane

#: A sum lists at most this many names, those with the most time.
NAMED: Final = 100


class Place(NamedTuple):
    """Where a slice is: its lane's id, the strip, the position in the strip."""

    lane: str
    level: int
    place: int


def find(
    timeline: Timeline,
    lanes: list[tuple[str, Lane]],
    text: str,
    time: int,
    after: Place | None,
    back: bool,
    exact: bool = False,
) -> dict[str, Any]:
    """Return the next slice whose name contains ``text``, or equals it with ``exact``: the first that begins
    at ``time`` (ns) or later, or with ``back`` the last that begins at ``time`` or earlier; also the number
    of hits and its number among them. Slices are ordered by start, then lane, strip and position. ``after``:
    the slice at ``time`` that was found last; the search continues after it. After the last hit comes the
    first."""
    named = timeline.names.equal(text) if exact else timeline.names.matching(text)
    number = {lane_id: index for index, (lane_id, _) in enumerate(lanes)}
    cursor = None
    if after is not None and after.lane in number:
        cursor = (number[after.lane], after.level, after.place)
    hits: list[tuple[tuple[int, int], Ints, Ints]] = []
    for place, (_, lane) in enumerate(lanes):
        for level, strip in enumerate(lane.strips):
            rows = np.flatnonzero(named[strip.name])
            if len(rows):
                hits.append(((place, level), rows, strip.start[rows]))
    total = sum(len(rows) for _, rows, _ in hits)
    if not total:
        return {"total": 0, "found": None}
    # per strip the number of hits before the wanted position; the best hit is next to it
    before = [_before(hit, time, cursor, back) for hit in hits]
    best: tuple[int, tuple[int, int], int] | None = None
    for wrapped in (False, True):
        for (key, rows, start), count in zip(hits, before, strict=True):
            if wrapped:
                count = len(rows) if back else 0
            one = count - 1 if back else count
            if 0 <= one < len(rows):
                candidate = (int(start[one]), key, int(rows[one]))
                if best is None or (candidate > best if back else candidate < best):
                    best = candidate
        if best is not None:
            break
    assert best is not None
    start_of, (place, level), index = best
    lane_id, lane = lanes[place]
    strip = lane.strips[level]
    earlier = sum(_before(hit, start_of, (place, level, index), True) for hit in hits)
    return {
        "total": total,
        "number": earlier + 1,
        "found": {
            "lane": lane_id,
            "level": level,
            "index": index,
            "start": str(start_of),
            "end": str(start_of + int(strip.lasted(index))),
            "name": timeline.names[int(strip.name[index])],
        },
    }


def _before(
    hits: tuple[tuple[int, int], Ints, Ints],
    time: int,
    cursor: tuple[int, int, int] | None,
    back: bool,
) -> int:
    """Return how many hits of a strip come before the wanted position."""
    key, rows, start = hits
    low, high = np.searchsorted(start, time), np.searchsorted(start, time, side="right")
    if cursor is None:
        return int(high if back else low)
    if key != cursor[:2]:  # slices that begin at the same time are ordered by lane and strip
        return int(high if key < cursor[:2] else low)
    tied = rows[low:high]
    return int(low + np.searchsorted(tied, cursor[2], side="left" if back else "right"))


def sums(timeline: Timeline, lanes: list[tuple[str, Lane]], low: int, high: int) -> dict[str, Any]:
    """Return the sums in ``[low, high)`` ns: per lane the number of slices that overlap it, their time
    inside it, and the time in which any slice ran; the same by category and by name. The time of a slice
    inside another counts for both, because each has its own name; ``busy`` counts each moment once."""
    count = len(timeline.names)
    time_of, slices_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
    kind_time, kind_slices = (np.zeros(len(CATEGORIES), np.int64) for _ in range(2))
    rows: list[dict[str, Any]] = []
    for lane_id, lane in lanes:
        total = slices = 0
        spans: list[tuple[Ints, Ints]] = []
        for start, end, name, kind in _parts(lane, low, high):
            begin, close = np.maximum(start, low), np.minimum(end, high)
            lasted = np.maximum(close - begin, 0)
            for times, counts, codes in (
                (time_of, slices_of, name),
                (kind_time, kind_slices, kind),
            ):
                _add(times, codes, lasted)
                counts += np.bincount(codes, minlength=len(counts))
            total += int(lasted.sum())
            slices += len(lasted)
            spans.append((begin, close))
        if len(spans) == 1 and not len(lane.left.start):
            busy = total
        elif spans:
            busy = union_length(*(np.concatenate(side) for side in zip(*spans, strict=True)))
        else:
            busy = 0
        rows.append({"lane": lane_id, "slices": slices, "time": total, "busy": busy})
    order = np.lexsort((-slices_of, -time_of))
    order = order[slices_of[order] > 0]
    shown = order[:NAMED]
    return {
        "lanes": rows,
        "time": int(time_of.sum()),
        "slices": int(slices_of.sum()),
        "kinds": [
            {
                "kind": CATEGORIES[category],
                "slices": int(kind_slices[category]),
                "time": int(kind_time[category]),
            }
            for category in np.argsort(-kind_time, kind="stable").tolist()
            if kind_slices[category]
        ],
        "names": [
            {
                "name": timeline.names[name_number],
                "slices": int(slices_of[name_number]),
                "time": int(time_of[name_number]),
            }
            for name_number in shown.tolist()
        ],
        "more": {
            "names": len(order) - len(shown),
            "slices": int(slices_of[order[NAMED:]].sum()),
            "time": int(time_of[order[NAMED:]].sum()),
        },
    }


def _parts(lane: Lane, low: int, high: int) -> list[tuple[Any, Any, Any, Any]]:
    """Return starts, ends, names and categories of each strip's slices that overlap the span."""
    parts: list[tuple[Any, Any, Any, Any]] = []
    for strip in lane.strips:
        first, after = strip.part(low, high)
        if after > first:
            part = slice(first, after)
            end = strip.start[part] + np.diff(strip.before[first : after + 1])
            parts.append((strip.start[part], end, strip.name[part], strip.kind[part]))
    left = lane.left
    inside = (left.start < high) & ((left.end > low) | (left.start >= low))
    if inside.any():
        parts.append((left.start[inside], left.end[inside], left.name[inside], left.kind[inside]))
    return parts


def _add(sums: Ints, codes: Any, values: Ints) -> None:
    """Add values by code, exactly; float64 sums are exact below 2^53 and several times faster."""
    if int(values.sum()) < 1 << 53:
        sums += np.bincount(codes, weights=values, minlength=len(sums)).astype(np.int64)
    else:
        np.add.at(sums, codes, values)
