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


WHY = {"": _unknown}
#: HTA rounds to 0.01 µs.
SAME = 1e-5
