"""Make a Kineto trace many times as long by repeating its events, each time later.

Usage: python benchmarks/scale_kineto.py SOURCE.json[.gz] TARGET.json [--times 10] [--stretch]

From copy to copy, timestamps increase by the length of the trace, and correlation ids, flow ids and sequence
numbers by more than the largest, so that every copy is attributed like the first. With ``--stretch`` each copy lasts 0.7 %
longer than the one before, and times start near zero: no two copies have the same durations, as no two steps of a
training have.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

_MOVED = ("correlation", "External id", "external id", "wait_on_cuda_event_record_corr_id")


def scale(source: Path, target: Path, times: int, stretch: bool = False) -> int:
    """Write the scaled trace, indented as Kineto does; return the number of events."""
    data = source.read_bytes()
    trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = trace.pop("traceEvents")
    timed = [e for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
    span = max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed) + 1000
    largest = max(
        (e["args"].get(key, 0) for e in timed if e.get("args") for key in _MOVED), default=0
    )
    flows = max((e["id"] for e in events if isinstance(e.get("id"), int)), default=0)
    step = max(largest, flows) + 1
    numbers = [e["args"].get("Sequence number", 0) for e in timed if e.get("args")]
    sequence = max(numbers, default=0) + 1
    begin = min(e["ts"] for e in timed)
    first = {id(e): _edges(e, begin) for e in events if "ts" in e} if stretch else {}
    written = 0
    with target.open("w") as file:
        file.write("{\n" + "".join(f'"{k}": {json.dumps(v)},\n' for k, v in trace.items()))
        file.write('"traceEvents": [\n')
        for copy in range(times):
            for event in events:
                if event.get("ph") == "M" and copy:
                    continue
                if copy:
                    if not stretch:
                        event["ts"] += span
                    if isinstance(event.get("id"), int):
                        event["id"] += step
                    args = event.get("args") or {}
                    for key in _MOVED:
                        if key in args:
                            args[key] += step
                    if "Sequence number" in args:
                        args["Sequence number"] += sequence
                if id(event) in first:
                    _stretched(event, *first[id(event)], copy, int(span * 1_000))
                file.write(",\n" if written else "")
                file.write("  {\n    " + json.dumps(event)[1:-1] + "\n  }")
                written += 1
        file.write("\n]}\n")
    return written


def _edges(event: dict[str, Any], begin: float) -> tuple[int, int]:
    """Start and end in ns from the trace's start."""
    start = round((event["ts"] - begin) * 1_000)
    return start, start + round(event.get("dur", 0) * 1_000)


def _stretched(event: dict[str, Any], start: int, end: int, copy: int, span: int) -> None:
    """Give a copy's event its times: whole ns, so that what nests still does."""
    longer = 1_000 + 7 * copy
    before = span * sum(1_000 + 7 * one for one in range(copy)) // 1_000
    start, end = (before + edge * longer // 1_000 for edge in (start, end))
    event["ts"] = start / 1_000
    if "dur" in event:
        event["dur"] = (end - start) / 1_000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--stretch", action="store_true")
    chosen = parser.parse_args()
    count = scale(chosen.source, chosen.target, chosen.times, chosen.stretch)
    size = chosen.target.stat().st_size
    print(f"{chosen.target}: {count:,} events, {size / 1e6:.0f} MB")
