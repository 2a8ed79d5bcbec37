"""The length of each stream's launch queue."""

from __future__ import annotations

TITLE = "queue length"
#: What HTA counts as launch calls.
CALLS = (
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync",
    "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemsetAsync", "hipMemcpyAsync", "hipMemcpyWithStream",
)  # fmt: skip
FULL = 1_024


def ours(profile):
    """Return launches, the longest queue, and the time (µs) with a full one, by stream."""
    found = {
        figure: value
        for row in profile.queue().to_dicts()
        if row["launches"]
        for figure, value in (
            (f"stream {row['stream']}: launches", row["launches"]),
            (f"stream {row['stream']}: longest", row["longest_queue"]),
            (f"stream {row['stream']}: full (µs)", row["full_time"] / 1e3),
        )
    }
    return found | _others(profile)


def _others(profile):
    """Return by stream the mean length, and the launches by calls that HTA does not count."""
    import numpy as np

    from opscope.core.analysis.device.device_work import work_on_devices
    from opscope.core.analysis.device.launch_delays import launches_of
    from opscope.core.analysis.device.queues import queue_of

    work, found = profile.of(work_on_devices), {}
    launches = launches_of(work, work.stream)
    names = profile.trace["calls"]["name"].gather(launches.call).cast(str)
    other = ~names.is_in(CALLS).to_numpy()
    for lane in sorted(set(launches.lane.tolist())):
        queue = queue_of(launches, np.flatnonzero(launches.lane == lane))
        held = np.diff(queue.time)
        stream = f"stream {work.streams['stream'][lane]}"
        if held.sum():
            found[f"{stream}: mean over time"] = (queue.length[:-1] * held).sum() / held.sum()
        many = int((launches.lane[other] == lane).sum())
        if many:
            found[f"{stream}: by other calls"] = many
    return found


def theirs(analysis):
    """Return HTA's series, of which the mean over time is computed here: its summary is over changes."""
    found = {}
    series = analysis.get_queue_length_time_series().get(0)
    if series is None:
        return found
    full = analysis.get_time_spent_blocked_on_full_queue({0: series}, FULL)
    blocked = (
        {}
        if full is None
        else {row.stream: row.duration_at_max_queue_length for row in full.itertuples()}
    )
    for stream, part in series.groupby("stream"):
        held = part["ts"].diff().shift(-1).fillna(0)
        found[f"stream {stream}: launches"] = len(part) / 2
        found[f"stream {stream}: longest"] = part["queue_length"].max()
        if held.sum():
            found[f"stream {stream}: mean over time"] = (
                part["queue_length"] * held
            ).sum() / held.sum()
        found[f"stream {stream}: full (µs)"] = blocked.get(stream, 0.0)
    return found


def _why(figure, mine, other):
    if f"{figure.partition(':')[0]}: by other calls" in mine:
        return "opscope: HTA leaves out launches of CUDA graphs, and all calls that it does not list by name"
    return None


WHY = {"": _why}
