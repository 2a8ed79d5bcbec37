"""Temporal breakdown: the time from the first work to the last, split into idle, computing and the rest."""

from __future__ import annotations

TITLE = "temporal breakdown"


def ours(profile):
    """Return the figures in µs, of the only device."""
    import polars as pl

    idle, overlap = profile.idle(), profile.overlap()
    if len(idle) != 1:
        return {"devices": len(idle)}
    window, nothing = idle["window"][0], idle["idle_time"][0]
    computes = pl.col("running_work").str.contains("computation") | (
        pl.col("running_work") == "all three"
    )
    computing = overlap.filter(computes)["time"].sum()
    return {
        "window (µs)": window / 1e3,
        "idle (µs)": nothing / 1e3,
        "computing (µs)": computing / 1e3,
        "neither (µs)": (window - nothing - computing) / 1e3,
    }


def theirs(analysis):
    """Return HTA's ``get_temporal_breakdown``."""
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    return {
        "window (µs)": row["kernel_time(us)"],
        "idle (µs)": row["idle_time(us)"],
        "computing (µs)": row["compute_time(us)"],
        "neither (µs)": row["non_compute_time(us)"],
    }
