"""Measure reading, attribution, summary and the whole report of Kineto traces, each in a separate process.

Usage: python benchmarks/kineto_read.py TRACE.json[.gz] ... [--peer PYTHON]

Each figure has its ratio to the floor, in CPU seconds; the floor decompresses the file and decodes every
event to typed structs that it drops. ``opscope report FILE`` is the command, with the start of the
interpreter and the imports. ``--peer`` also loads the file with Holistic Trace Analysis in a Python that has it. For
several traces, for example from ``scale_kineto.py``, the last lines show how time grows with the number of
events.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import children

_CHILD = """
import json, resource, sys, time
path = sys.argv[1]
{setup}
start, cpu = time.perf_counter(), time.process_time()
{body}
cpu = time.process_time() - cpu
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([seconds, cpu, peak, {count}]))
"""
RUNS = {
    "floor: decode and forget": (
        "from pathlib import Path\nfrom opscope.readers.kineto.json_events import KinetoFile",
        "count = sum(map(len, KinetoFile(Path(path)).blocks()))",
        "count",
    ),
    "read": (
        "from opscope import readers\nfrom opscope.readers.kineto import reader",
        "trace = readers.open(path)",
        "sum(map(len, trace.tables.values()))",
    ),
    "read, attribute": (
        "from opscope import readers\nfrom opscope.readers.kineto import reader\n"
        "from opscope.core.attribution.attribute import attribute",
        "found = attribute(readers.open(path))",
        "len(found.kernels.op)",
    ),
    "read, attribute, summary": (
        "import opscope.profile",
        "summary = opscope.profile.load(path).summary()",
        "summary['kernels'][0]",
    ),
}
PEER = (
    "import os\nfrom hta.trace_analysis import TraceAnalysis",
    "folder, file = os.path.split(os.path.abspath(path))\n"
    "TraceAnalysis(trace_files={0: file}, trace_dir=folder)",
    "0",
)


def measure(
    path: Path, name: str, parts: tuple[str, str, str], python: str
) -> tuple[float, float, float, int] | None:
    setup, body, count = parts
    code = _CHILD.format(setup=setup, body=body, count=count)
    done = subprocess.run(
        [python, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        return None
    seconds, cpu, peak, rows = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds, cpu, peak, rows


def compare(path: Path, runs: list[tuple[str, tuple[str, str, str], str]]) -> dict[str, float]:
    """Print the measurements of each part for one trace; return CPU seconds and the number of ``events``."""
    taken: dict[str, float] = {}
    print(f"{path.name:32}{'wall s':>8}{'CPU s':>8}{'× floor':>9}{'peak MiB':>10}{'rows':>12}")

    def line(name: str, seconds: float, cpu: float, peak: float, rows: int | None) -> None:
        taken[name] = cpu
        floor = next(iter(taken.values()))
        told = "" if rows is None else f"{rows:12,}"
        print(f"{name:32}{seconds:8.2f}{cpu:8.2f}{cpu / floor:9.2f}{peak:10.0f}{told}", flush=True)

    events = 0
    for name, parts, python in runs:
        found = measure(path, name, parts, python)
        if found is not None:
            line(name, *found)
            events = events or found[3]
    command = children.run(children.report(path))
    line("opscope report FILE", command.wall, command.cpu, command.peak * 1024, None)
    return {**taken, "events": events}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    parser.add_argument("--peer", metavar="PYTHON")
    chosen = parser.parse_args()
    runs = [(name, parts, sys.executable) for name, parts in RUNS.items()]
    if chosen.peer:
        runs.append(("Holistic Trace Analysis, load", PEER, chosen.peer))
    taken = [compare(path, runs) for path in chosen.traces]
    sizes = [one.pop("events") for one in taken]
    if len(set(sizes)) > 1:
        for name in taken[0]:
            if all(name in one for one in taken):
                power = children.growth(sizes, [one[name] for one in taken])
                print(f"{name}: time grows as size to the power of {power:.2f}")


if __name__ == "__main__":
    main()
