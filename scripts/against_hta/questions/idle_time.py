"""Idle time of each stream by what its next work waited for."""

from __future__ import annotations

TITLE = "idle time by stream"
KINDS = ("host_wait", "kernel_wait", "other")


def ours(profile):
    """Return the figures in µs."""
    found = {}
    for row in profile.idle("stream").to_dicts():
        lost = row["unknown_wait"] or 0
        for kind in KINDS:
            value = row["other_wait" if kind == "other" else kind]
            found[f"stream {row['stream']}: {kind} (µs)"] = None if value is None else value / 1e3
        if lost:
            found[f"stream {row['stream']}: launch unknown (µs)"] = lost / 1e3
    return found | _overlaps(profile)


def _overlaps(profile):
    """Return by stream how long (µs) a kernel runs before the one that starts before it has ended."""
    import numpy as np

    from opscope.core.analysis.device.device_work import work_on_devices

    work, found = profile.of(work_on_devices), {}
    for lane, rows in work.lanes(work.stream):
        over = np.minimum(work.start[rows][1:] - work.end[rows][:-1], 0).sum()
        if over:
            found[f"stream {work.streams['stream'][lane]}: overlap (µs)"] = -over / 1e3
    return found


def theirs(analysis):
    """Return HTA's ``get_idle_time_breakdown``, whose default threshold of 30 is in µs."""
    frame = analysis.get_idle_time_breakdown(visualize=False)[0]
    found = {
        f"stream {stream}: {kind} (µs)": 0.0
        for stream in frame["stream"].unique()
        for kind in KINDS
    }
    for row in frame.itertuples():
        found[f"stream {row.stream}: {row.idle_category} (µs)"] = row.idle_time
    return found


def _overlapping(figure, mine, other):
    stream = figure.partition(":")[0]
    over = mine.get(f"{stream}: overlap (µs)")
    one, two = mine.get(figure), other.get(figure)
    if over is None or (two is not None and not 0 < one - two <= over + 0.01):
        return None
    return "opscope: kernels of this stream overlap, and HTA adds the gaps below 0 between them"


def _unknown(figure, mine, other):
    stream = figure.partition(":")[0]
    lost = f"{stream}: launch unknown (µs)"
    if lost not in mine:
        return None
    names = [f"{stream}: {kind} (µs)" for kind in KINDS]
    one, two = (sum(found.get(name) or 0 for name in names) for found in (mine, other))
    if abs(one + mine[lost] - two) > 1e-6 * max(abs(two), 1) + 0.05:
        return None
    return "HTA calls gaps without a launch record kernel_wait or other; opscope: launch unknown. The sums are equal"


WHY = {"kernel_wait|overlap": _overlapping, "": _unknown}
#: HTA rounds to 0.01 µs.
WITHIN = 6e-3
