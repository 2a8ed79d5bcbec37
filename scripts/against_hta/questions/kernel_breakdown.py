"""Kernels by type, with overlaps; and the time of each kernel."""

from __future__ import annotations

TITLE = "kernel breakdown"
_TYPES = {
    "computation": "COMPUTATION",
    "communication": "COMMUNICATION",
    "computation and communication": "COMPUTATION overlapping COMMUNICATION",
    "copies": "MEMORY",
    "computation and copies": "COMPUTATION overlapping MEMORY",
    "communication and copies": "COMMUNICATION overlapping MEMORY",
    "all three": "COMPUTATION overlapping COMMUNICATION overlapping MEMORY",
}
#: The kernels with most time that are compared one by one: HTA adds up the others.
TOP = 8


def ours(profile):
    """Return the time (µs) by type, and calls, sum, mean, least and most of the longest kernels."""
    import polars as pl

    found = {}
    overlap = (
        profile.overlap().group_by("running_work", maintain_order=True).agg(pl.col("time").sum())
    )
    for what, time in overlap.filter(pl.col("time") > 0).rows():
        found[f"{_TYPES[what]} (µs)"] = time / 1e3
    totals = profile.kernel_totals()
    for row in totals.head(TOP).to_dicts():
        for name in ("total", "mean", "min", "max"):
            found[f"{_short(row['name'])}: {name} (µs)"] = row[name] / 1e3
    return found


def theirs(analysis):
    """Return the same of ``get_gpu_kernel_breakdown``."""
    types, kernels = analysis.get_gpu_kernel_breakdown(
        visualize=False, duration_ratio=1.0, num_kernels=100_000, include_memory_kernels=True
    )
    table = analysis.t.symbol_table.get_sym_table()
    events = analysis.t.get_trace(0)
    on_stream = events[events["stream"].ne(-1)]
    others = ~on_stream["cat"].map(lambda code: table[code]).str.lower().str.contains("kernel|mem")
    found = {"no kernels": int(others.sum())} if others.any() else {}
    found |= {
        f"{row.kernel_type} (µs)": row.sum for row in types.itertuples(index=False) if row.sum
    }
    kernels = kernels[kernels["kernel_type"].ne("MEMORY")].sort_values("sum (us)", ascending=False)
    for _, row in kernels.head(TOP).iterrows():
        for name, column in (
            ("total", "sum (us)"),
            ("mean", "mean (us)"),
            ("min", "min (us)"),
            ("max", "max (us)"),
        ):
            found[f"{_short(row['name'])}: {name} (µs)"] = row[column]
    return found


def _short(name):
    import zlib

    return f"{name[:40]} #{zlib.crc32(name.encode()) % 10_000:04}"


def _events(figure, mine, other):
    if other.get("no kernels"):
        return "opscope: HTA counts every event with a stream as a kernel, also waits (cuda_sync) and Triton's CPU ops"
    return None


def _truncated(figure, mine, other):
    one, two = mine.get(figure), other.get(figure)
    if one is not None and two is not None and two == int(two) and one - two > 0:
        return "opscope: HTA cuts each interval to whole µs before it adds them up"
    return None


WHY = {r"^COM|^MEMORY": _truncated, "": _events}
