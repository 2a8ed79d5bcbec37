"""Make the table ``windows``: the times of a recording in which device work was captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from opscope.core.tables.trace import Trace, conform
from opscope.readers.recording.beside import REACH_NS

#: Why a part whose process used a GPU has no window.
NO_PROFILER: Final = "no profiler ran during this part of the recording"
KILLED: Final = "the process ended before its profiler did, so the profiler's data is lost"
FAILED: Final = "the profiler failed"
BEFORE: Final = (
    "kernels, copies and sets launched before their ranges were recorded, left out (harmless)"
)
_EVER: Final = 1 << 62


def with_windows(traces: Sequence[Trace]) -> list[Trace]:
    """Return the parts of a recording, each with its rows of ``windows`` if any part has gaps.

    If a process has a chosen window of similar steps, the device work that its profiler captured before that
    window is left out, and so is work launched before the recorder began. The calls stay, because kernels of
    CUDA graphs find their captures by them.
    """
    begun = [(trace.origin["profiling"], trace.origin["recorded"][0]) for trace in traces]
    windows = [_window_of(trace) for trace in traces]
    traces = [
        trace if profiling is None or start is None else _from(trace, start)
        for trace, (profiling, start) in zip(traces, begun, strict=True)
    ]
    chosen = {
        _process(trace) for trace, window in zip(traces, windows, strict=True) if window["chosen"]
    }
    for trace, window in zip(traces, windows, strict=True):
        if _process(trace) in chosen and not window["chosen"] and window["source"] is not None:
            window["end"] = window["start"]  # the chosen window came later
    if all(window["complete"] for window in windows):
        return list(traces)
    return [_cut(trace, window) for trace, window in zip(traces, windows, strict=True)]


def _process(trace: Trace) -> tuple[Any, ...]:
    row: tuple[Any, ...] = trace["processes"].select("host", "pid", "start_time").row(0)
    return row


def _window_of(trace: Trace) -> dict[str, Any]:
    """A part's window: a row of the table, plus ``chosen`` and ``complete``."""
    origin = trace.origin
    start, stop = origin.pop("recorded")
    profiling, window = origin.pop("profiling"), origin.pop("window")
    row = {
        "start": start or 0,
        "end": stop,
        "source": None,
        "first_step": None,
        "last_step": None,
        "ended": None,
        "chosen": False,
        "complete": True,
    }
    if profiling is None:
        if origin.get("gpu"):
            row |= {"end": row["start"], "source": "none", "ended": NO_PROFILER, "complete": False}
        return row
    begun, row["source"] = profiling
    if window is not None and not {"kernels", "operations"}.isdisjoint(origin):
        row |= window
        if window["ended"] is None:  # it lasts until the recording's end, which is a moment later
            row["end"] = max(row["end"], stop)
        late = start is not None and window["start"] > start
        row["complete"] = window["ended"] is None and not late
    else:
        notes = trace["notes"]["what"].cast(pl.String)
        failed = bool(notes.str.contains(" not captured: ", literal=True).any())
        row |= {"start": begun, "end": begun, "ended": FAILED if failed else KILLED}
        row["complete"] = False
    return row


def _cut(trace: Trace, window: dict[str, Any]) -> Trace:
    start, end = window["start"], window["end"]
    row = {name: window[name] for name in ("start", "end", "source", "ended")}
    steps = {name: window[name] for name in ("first_step", "last_step")}
    table = conform("windows", pl.DataFrame([{"process": 0, **row, **steps}], strict=False))
    changed = {"windows": table}
    if window["source"] is not None:
        for name in ("kernels", "memops"):
            if trace.has(name):
                changed[name] = launched_within(trace[name], trace["calls"], start, end)
    cut = trace.replace(**changed)
    if window["ended"] == KILLED:
        cut.note("warning", f"kernels not captured: {KILLED}")
    return cut


def _from(trace: Trace, start: int) -> Trace:
    """Return the part without work that was launched before its ranges were recorded. The profiler begins
    before the recorder. In a program that runs already (``opscope attach``), no range can enclose the work in
    between: 17 kernels in 15 ms on an H200."""
    error = int(trace["clocks"]["error_ns"].fill_null(0).max() or 0)  # type: ignore[arg-type]
    if error >= REACH_NS:
        return trace  # placed by the Unix clocks alone
    start -= error
    changed = {
        name: launched_within(trace[name], trace["calls"], start, _EVER)
        for name in ("kernels", "memops")
        if trace.has(name) and len(trace[name])
    }
    less = {name: kept for name, kept in changed.items() if len(kept) < len(trace[name])}
    if not less:
        return trace
    cut = trace.replace(**less)
    count = sum(len(trace[name]) - len(kept) for name, kept in less.items())
    cut.note("info", BEFORE, count)
    return cut


def launched_within(table: pl.DataFrame, calls: pl.DataFrame, start: int, end: int) -> pl.DataFrame:
    """Return kernels or copies launched in [start, end); for work without a launch record, its own start
    counts."""
    launches = calls.group_by("process", "correlation").agg(pl.col("start").max().alias("_launch"))
    begun = pl.coalesce("_launch", "start")
    return (
        table.join(launches, on=["process", "correlation"], how="left", maintain_order="left")
        .filter((begun >= start) & (begun < end))
        .drop("_launch")
    )
