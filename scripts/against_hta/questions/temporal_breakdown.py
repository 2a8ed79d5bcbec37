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
    """Return HTA's ``get_temporal_breakdown``, and how many events it takes for kernels that are none."""
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    table = analysis.t.symbol_table.get_sym_table()
    events = analysis.t.get_trace(0)
    kinds = events[events["stream"].ne(-1)]["cat"].map(lambda code: table[code])
    others = int((~kinds.str.lower().str.contains("kernel|mem")).sum())
    return ({"no kernels": others} if others else {}) | {
        "window (µs)": row["kernel_time(us)"],
        "idle (µs)": row["idle_time(us)"],
        "computing (µs)": row["compute_time(us)"],
        "neither (µs)": row["non_compute_time(us)"],
    }


def _why(figure, mine, other):
    if other.get("no kernels"):
        return "opscope: HTA counts every event with a stream as a kernel, also waits (cuda_sync) and Triton's CPU ops"
    return None


WHY = {"": _why}
