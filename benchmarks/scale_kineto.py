"""Make a Kineto trace many times as long by repeating its events, each time later.

Usage: python benchmarks/scale_kineto.py SOURCE.json[.gz] TARGET.json [--times 10]

From copy to copy, timestamps increase by the length of the trace, and correlation ids, flow ids and sequence
numbers by more than the largest, so that every copy is attributed like the first.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

_MOVED = ("correlation", "External id", "external id", "wait_on_cuda_event_record_corr_id")


def scale(source: Path, target: Path, times: int) -> int:
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
    written = 0
    with target.open("w") as file:
        file.write("{\n" + "".join(f'"{k}": {json.dumps(v)},\n' for k, v in trace.items()))
        file.write('"traceEvents": [\n')
        for copy in range(times):
            for event in events:
                if event.get("ph") == "M" and copy:
                    continue
                if copy:
                    event["ts"] += span
                    if isinstance(event.get("id"), int):
                        event["id"] += step
                    args = event.get("args") or {}
                    for key in _MOVED:
                        if key in args:
                            args[key] += step
                    if "Sequence number" in args:
                        args["Sequence number"] += sequence
                file.write(",\n" if written else "")
                file.write("  {\n    " + json.dumps(event)[1:-1] + "\n  }")
                written += 1
        file.write("\n]}\n")
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--times", type=int, default=10)
    chosen = parser.parse_args()
    count = scale(chosen.source, chosen.target, chosen.times)
    size = chosen.target.stat().st_size
    print(f"{chosen.target}: {count:,} events, {size / 1e6:.0f} MB")
