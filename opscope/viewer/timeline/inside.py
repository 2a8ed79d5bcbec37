"""The slices directly inside a slice, and what a kernel waited for on its stream.
``web/src/timeline/local_inside.ts`` computes the same for a single file."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from .index import Timeline
from .lane import Lane

#: Number of names listed for the inside of a slice, those with the most time.
_NAMES: Final = 8
#: Characters of these names: a single file holds no more of a name.
_CHARACTERS: Final = 200
#: The most inner slices that are added up; if there are more, only their number is given.
_ADDED: Final = 100_000


def inside(timeline: Timeline, lane: Lane, level: int, index: int) -> dict[str, Any] | None:
    """Return the slices one level deeper: ``slices``, their ``time`` (ns), the rest of the slice's own
    time (``self_time``), and the ``names`` with the most time. None if nothing can be inside."""
    if level + 1 >= len(lane.strips):
        return None
    strip, deeper = lane.strips[level], lane.strips[level + 1]
    low = int(strip.start[index])
    high = low + int(strip.lasted(index))
    first, after = deeper.part(low, high)
    count = after - first
    if count <= 0 or count > _ADDED:
        return (
            None if count <= 0 else {"slices": count, "time": None, "self_time": None, "names": []}
        )
    sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in range(first, after):
        of_name = sums[int(deeper.name[row])]
        of_name[0] += 1
        of_name[1] += int(deeper.lasted(row))
    time = sum(total for _, total in sums.values())
    named = [(_name(timeline, number), times, total) for number, (times, total) in sums.items()]
    named.sort(key=lambda row: (-row[2], row[0]))
    return {
        "slices": count,
        "time": time,
        "self_time": max(0, high - low - time),
        "names": [
            {"name": name, "slices": slices, "time": total}
            for name, slices, total in named[:_NAMES]
        ],
    }


def waiting(
    timeline: Timeline, lane: Lane, level: int, index: int, launched_before: int | None
) -> dict[str, Any] | None:
    """Return what a kernel waited for from its launch, ``launched_before`` ns earlier, to its start.

    ``behind``: the name of the previous work on the stream, which took ``behind_time`` ns of the
    wait; the rest is ``launch_time``. ``idle_before``: how long the stream was idle before. None if the
    launch, or the order of the stream, is not known.
    """
    if launched_before is None or len(lane.strips) != 1:
        return None
    strip = lane.strips[level]
    start = int(strip.start[index])
    free = None if index == 0 else int(strip.start[index - 1] + strip.lasted(index - 1))
    behind = 0 if free is None else max(0, free - (start - launched_before))
    return {
        "behind": _name(timeline, int(strip.name[index - 1])) if behind else None,
        "behind_time": behind,
        "launch_time": max(0, launched_before - behind),
        "idle_before": None if free is None else max(0, start - free),
    }


def _name(timeline: Timeline, number: int) -> str:
    return timeline.names[number][:_CHARACTERS]
