"""Leave out the work of processes that are loaded only for the CUDA graphs that they captured.

The trace of a capture gives the ops and shapes for the trace of the replays. What the capturing process
executed itself (its warm-up, its work around the capture) belongs to another run, and would add to the
totals of the run with the replays.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.attribution.cuda_graphs import replayed
from opscope.core.attribution.launching_calls import launching_calls
from opscope.core.dialects.launches import GRAPH_LAUNCH
from opscope.core.tables.columns import at, matching
from opscope.core.tables.intervals import NONE
from opscope.core.tables.trace import Trace

#: Key in ``origin`` of the list of these processes: ``process``, ``path`` (of its file, None if unknown),
#: ``of`` (the path of the replays), and how many of its ``kernels`` and ``copies`` are left out.
CAPTURES: Final = "captures"


def without_captures(trace: Trace) -> Trace:
    """Return ``trace`` without the work of processes that are in it only for their captures.

    This is so if another process replays what the process captured, the process replays nothing itself, and
    none of its kernels ran while the other's kernels ran. The two must have the same rank or, if neither rank
    is known, the same process id or different clock domains (separate files).
    """
    if len(trace["processes"]) < 2 or trace.origin.get(CAPTURES):
        return trace
    kernels, calls = trace["kernels"], trace["calls"]
    if not len(kernels) or not matching(calls["name"], GRAPH_LAUNCH).any():
        return trace
    links = {name: launching_calls(trace[name], calls) for name in ("kernels", "memops")}
    process = calls["process"].fill_null(NONE).to_numpy()
    pairs: set[tuple[int, int]] = set()
    replaying: set[int] = set()
    for table, graph in replayed(trace, links).items():
        by = trace[table]["process"].gather(graph.rows).fill_null(NONE).to_numpy()
        captured_by = at(process, graph.call)
        cross = (graph.call >= 0) & (captured_by != by)
        pairs.update(zip(captured_by[cross].tolist(), by[cross].tolist(), strict=True))
        replaying.update(by.tolist())
    replays: dict[int, int] = {
        capturing: other
        for capturing, other in sorted(pairs)
        if capturing not in replaying and _goes_with(trace, capturing, other)
    }
    return _without(trace, links, replays) if replays else trace


def _goes_with(trace: Trace, capturing: int, replaying: int) -> bool:
    rows = {row["process"]: row for row in trace["processes"].to_dicts()}
    capture_row, other = rows.get(capturing, {}), rows.get(replaying, {})

    def same(key: str) -> bool:
        return capture_row.get(key) is not None and capture_row.get(key) == other.get(key)

    alone = capture_row.get("clock_domain") != other.get("clock_domain")
    if not (
        same("rank") or (capture_row.get("rank") == other.get("rank") and (same("pid") or alone))
    ):
        return False
    spans = [
        trace["kernels"].filter(pl.col("process") == number).select("start", "end")
        for number in (capturing, replaying)
    ]
    if spans[0].is_empty():
        return True
    (low, high), (start, end) = (
        (int(span["start"].to_numpy().min()), int(span["end"].to_numpy().max())) for span in spans
    )
    return high <= start or end <= low


def _without(trace: Trace, links: dict[str, Any], replays: dict[int, int]) -> Trace:
    gone = np.zeros(len(trace["calls"]), bool)
    tables: dict[str, pl.DataFrame] = {}
    counts: dict[str, dict[int, int]] = {}
    chosen = pl.col("process").is_in(list(replays)).fill_null(False)
    for name, link in links.items():
        frame = trace[name]
        theirs = frame.select(chosen).to_series()
        launched = link[theirs.to_numpy()]
        gone[launched[launched >= 0]] = True  # without kernels they would look like captured calls
        counts[name] = dict(frame.filter(theirs)["process"].value_counts().rows())
        if trace.has(name):
            tables[name] = frame.filter(~theirs)
    tables["calls"] = trace["calls"].filter(pl.Series(~gone))
    trace_without = trace.replace(**tables)
    trace_without.origin[CAPTURES] = [
        {
            "process": process,
            "path": _path_of(trace, process),
            "of": _path_of(trace, other),
            "kernels": counts["kernels"].get(process, 0),
            "copies": counts["memops"].get(process, 0),
        }
        for process, other in sorted(replays.items())
    ]
    return trace_without


def _path_of(trace: Trace, process: int) -> str | None:
    """Return the path of the file that a process comes from; None if unknown."""
    parts = [
        part for part in trace.origin.get("parts", ()) if part.get("first_process", 0) <= process
    ]
    paths = parts[-1].get("paths") if parts else None
    return str(paths[0]) if paths else None


def only_captured(trace: Trace) -> list[int]:
    """Return the processes that are in the trace only for their captures."""
    return [capture["process"] for capture in trace.origin.get(CAPTURES, ())]
