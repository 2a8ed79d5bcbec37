"""The bandwidth of copies and sets."""

from __future__ import annotations

TITLE = "memory bandwidth"


def ours(profile):
    """Return by kind the most bandwidth at a time (GB/s), and the bytes (GB) that the series adds up to."""
    import polars as pl

    found = {
        "times in whole µs": "no" if (profile.trace["memops"]["end"] % 1_000 != 0).any() else "yes"
    }
    sized = profile.trace["memops"].filter(
        pl.col("bytes").is_not_null() & (pl.col("end") > pl.col("start"))
    )
    for (kind,), rows in profile.bandwidth_curve().group_by("kind", maintain_order=True):
        name = "Memset" if kind == "memset" else f"Memcpy {kind}"
        moved = sized.filter(pl.col("kind").cast(pl.String) == kind)
        found[f"{name}: most (GB/s)"] = rows["moving_bandwidth"].max() / 1e9
        found[f"{name}: copies"] = len(moved)
        found[f"{name}: moved (GB)"] = moved["bytes"].sum() / 1e9
    return found


def theirs(analysis):
    """Return the same of ``get_memory_bw_time_series``: it has two rows a copy, at its start and its end."""
    found = {}
    series = analysis.get_memory_bw_time_series().get(0)
    events = analysis.t.get_trace(0)
    copies = events[events["stream"].ne(-1) & events["memory_bw_gbps"].gt(0)]
    ends = (copies["ts"] + copies["dur"]).to_numpy()
    found["times in whole µs"] = "yes" if (abs(ends - ends.round()) < 1e-4).all() else "no"
    if series is None:
        return found
    for name, part in series.groupby("name"):
        held = part["ts"].diff().shift(-1).fillna(0)
        found[f"{name}: most (GB/s)"] = part["memory_bw_gbps"].max()
        found[f"{name}: copies"] = len(part) / 2
        found[f"{name}: moved (GB)"] = (part["memory_bw_gbps"] * held).sum() / 1e6
    return found


def _rounded(figure, mine, other):
    one, two = mine.get(figure), other.get(figure)
    if mine.get("times in whole µs") != "yes":
        near = one and two and abs(one - two) < 1e-3 * one
        return (
            "Kineto's rate is of a duration 1 ns longer than the one that it writes"
            if near
            else None
        )
    if "moved" in figure:
        return "opscope, whose figure is the file's bytes: HTA multiplies a rate by a time rounded to µs"
    return (
        "HTA, which takes the rate that Kineto computed before it rounded the times to µs; opscope divides the"
        " bytes by the rounded time"
    )


WHY = {"GB": _rounded}
#: Rates of sets may be small.
WITHIN = 1e-9
