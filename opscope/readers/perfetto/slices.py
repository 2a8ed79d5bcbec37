"""Pair the beginnings and ends of slices on each track, which nest."""

from __future__ import annotations

import numpy as np

from opscope.core.tables.intervals import Ints


def paired(track: Ints, time: Ints, opens: Ints) -> tuple[Ints, Ints, int, int]:
    """Return the rows of beginnings and of their ends, how many ends lack a beginning, and how many
    beginnings lack an end.

    ``opens``: whether a row begins a slice (1) or ends the latest that is open on its track (-1). Rows of one
    time are in the order of the file.
    """
    if not len(track):
        return track, track, 0, 0
    order = np.lexsort((time, track))
    on, step = track[order], opens[order]
    first = np.flatnonzero(np.concatenate(([True], on[1:] != on[:-1])))
    depth = np.cumsum(step)
    level = np.empty(len(order), np.int64)
    stray = np.zeros(len(order), bool)
    for begin, end in zip(first, [*first[1:], len(order)], strict=True):
        here = depth[begin:end] - (depth[begin] - step[begin])
        lowest = np.minimum(np.minimum.accumulate(here), 0)
        before = np.concatenate(([0], lowest[:-1]))
        stray[begin:end] = (step[begin:end] < 0) & (lowest < before)
        # an end has the same level as its beginning
        level[begin:end] = here - lowest + (step[begin:end] < 0)
    kept = np.flatnonzero(~stray)
    by_level = kept[np.lexsort((kept, level[kept], on[kept]))]
    same = (on[by_level][1:] == on[by_level][:-1]) & (level[by_level][1:] == level[by_level][:-1])
    pair = np.flatnonzero(same & (step[by_level][:-1] > 0) & (step[by_level][1:] < 0))
    starts, ends = order[by_level[pair]], order[by_level[pair + 1]]
    return starts, ends, int(stray.sum()), int((opens > 0).sum()) - len(starts)
