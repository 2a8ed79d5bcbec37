"""The critical path of one part of the trace: what it is made of."""

from __future__ import annotations

TITLE = "critical path"
#: The annotations whose second (else first) run is compared: steps, or PARAM's ranges around one forward pass.
ANNOTATIONS = ("ProfilerStep", "[param|pytorch.model.alex_net|0|0|0|measure|forward]")


def ours(profile):
    """Return the path's time (µs) by kind inside the annotation, and its kernels."""
    import polars as pl

    found = _window(profile)
    if found is None:
        return {}
    low, high = found
    path = profile.critical_path().filter((pl.col("end") > low) & (pl.col("start") < high))
    path = path.with_columns(
        pl.max_horizontal("start", pl.lit(low)), pl.min_horizontal("end", pl.lit(high))
    )
    sums = dict(path.group_by("kind").agg((pl.col("end") - pl.col("start")).sum()).iter_rows())
    device = ("kernel", "copy", "set", "communication")
    made = {
        "path in all (µs)": sum(sums.values()),
        "the part in all (µs)": high - low,
        "host (µs)": sum(sums.get(one, 0) for one in ("op", "call", "host")),
        "launch delay (µs)": sums.get("launch", 0),
        "between device work (µs)": sums.get("gap", 0) + sums.get("unexplained", 0),
        "device work (µs)": sum(sums.get(one, 0) for one in device),
        "return from a wait (µs)": sums.get("sync", 0),
    }
    worked = path.filter(pl.col("kind").is_in(device))
    return {name: time / 1e3 for name, time in made.items()} | {
        "pieces of device work": worked.select("start", "stream").n_unique(),
    }


def _window(profile):
    import polars as pl

    ranges = profile.trace["ranges"]
    text = ranges["text"].cast(str)
    for wanted in (pl.Series(ranges["category"] == "step"), text.str.starts_with(ANNOTATIONS[1])):
        rows = ranges.filter(wanted.fill_null(False)).sort("start")
        if len(rows):
            row = rows.row(min(1, len(rows) - 1), named=True)
            return row["start"], row["end"]
    return None


def theirs(analysis):
    """Return HTA's path of the same annotation, its edges added up by type."""
    trace = analysis.t
    symbols = trace.symbol_table.get_sym_table()
    for annotation in ANNOTATIONS:
        runs = [one for one in symbols if annotation in one]
        if not runs:
            continue
        names = trace.get_trace(0)["name"].map(lambda one: symbols[one])
        rows = trace.get_trace(0)[names.isin(runs)].sort_values("ts")
        rows = rows[rows["stream"] == -1]
        if not len(rows):
            continue
        instance = min(1, len(rows) - 1)
        graph, done = analysis.critical_path_analysis(
            rank=0, annotation=annotation, instance_id=instance
        )
        if not done:
            raise ValueError("HTA finds no critical path")
        return _of(graph, rows.iloc[instance])
    return {}


def _why(figure, mine, other):
    """Say why, if what HTA gives no weight to makes up the difference to the microsecond."""
    if "without weight: between ops (µs)" not in other:
        return None
    between, waits = other["without weight: between ops (µs)"], other["without weight: waits (µs)"]
    after = other["after the path (µs)"]
    apart = {name: mine[name] - other[name] for name in mine if name in other}
    if abs(apart["path in all (µs)"] - between - waits - after) > 0.01:
        return None
    if figure == "path in all (µs)":
        return (
            "opscope: its path covers the part. HTA gives no weight to the time between ops, in calls that may"
            " wait, and at waits, and its path ends with the last event, not with the part"
        )
    if other["longest gap (µs)"] > LONG and figure not in (*LEFT, "longest gap (µs)"):
        return (
            "opscope: HTA's path sits on an idle stream for its longest gap, as the trace has no synchronisation"
            " events; opscope infers what was waited for"
        )
    if figure == "between device work (µs)":
        fits = abs(apart[figure] - waits) < 0.01
        return "opscope: HTA gives no weight to the gap after a wait for an event" if fits else None
    if figure in ("host (µs)", "return from a wait (µs)"):
        whole = apart["host (µs)"] + apart["return from a wait (µs)"]
        return "opscope: as in all" if abs(whole - between - after) < 0.01 else None
    if figure in (*LEFT, "longest gap (µs)"):
        return "HTA's alone: explains the others"
    return None


#: Longer than any gap between device work that is ready to run (µs).
LONG = 1_000
LEFT = ("without weight: between ops (µs)", "without weight: waits (µs)", "after the path (µs)")
WHY = {"": _why}


def _of(graph, row):
    sums = {}
    left = dict.fromkeys(LEFT, 0)
    times = [one.ts for one in graph.node_list]
    for edge in graph.critical_path_edges_set:
        lost = times[edge.end] - times[edge.begin] - edge.weight
        left[LEFT[edge.type.name == "SYNC_DEPENDENCY"]] += lost
    ends = [times[edge.end] for edge in graph.critical_path_edges_set]
    left[LEFT[2]] = row["ts"] + row["dur"] - max(ends)
    begin = min(times[edge.begin] for edge in graph.critical_path_edges_set)
    left[LEFT[0]] += begin - row["ts"]
    device = set()
    frame = graph.trace_df
    for edge in graph.critical_path_edges_set:
        kind = edge.type.name
        if kind == "OPERATOR_KERNEL":
            event = graph.edge_to_event_map.get((edge.begin, edge.end))
            stream = -1 if event is None or event < 0 else frame["stream"].loc[event]
            kind = "HOST" if stream == -1 else "DEVICE"
            if stream != -1:
                device.add(event)
        sums[kind] = sums.get(kind, 0) + edge.weight
    gaps = [
        one.weight
        for one in graph.critical_path_edges_set
        if one.type.name == "KERNEL_KERNEL_DELAY"
    ]
    return {
        "longest gap (µs)": max(gaps, default=0),
        "path in all (µs)": sum(sums.values()),
        "the part in all (µs)": row["dur"],
        "host (µs)": sums.get("HOST", 0),
        "launch delay (µs)": sums.get("KERNEL_LAUNCH_DELAY", 0),
        "between device work (µs)": sums.get("KERNEL_KERNEL_DELAY", 0),
        "device work (µs)": sums.get("DEVICE", 0),
        "return from a wait (µs)": 0,
        "pieces of device work": len(device),
    } | left
