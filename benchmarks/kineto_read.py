"""Times reading, attribution and summary of a Kineto trace, each in a process of its own.

Usage: python benchmarks/kineto_read.py TRACE.json[.gz] [--peer PYTHON]

Beside each figure its ratio to the floor: decompressing the file and decoding every event to typed
structs that are thrown away. ``--peers`` also loads the file with Holistic Trace Analysis, where it
is installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

_CHILD = """
import json, resource, sys, time
path = sys.argv[1]
{setup}
start = time.perf_counter()
{body}
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([seconds, peak, {count}]))
"""
RUNS = {
    "floor: decode and forget": (
        "from pathlib import Path\nfrom opscope.readers.kineto_json import KinetoFile",
        "count = sum(map(len, KinetoFile(Path(path)).blocks()))",
        "count",
    ),
    "read": (
        "from opscope import readers\nfrom opscope.readers import kineto",
        "trace = readers.open(path)",
        "sum(map(len, trace.tables.values()))",
    ),
    "read, attribute": (
        "from opscope import readers\nfrom opscope.readers import kineto\n"
        "from opscope.core.attribute import attribute",
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
) -> tuple[float, float, int] | None:
    setup, body, count = parts
    code = _CHILD.format(setup=setup, body=body, count=count)
    done = subprocess.run(
        [python, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        return None
    seconds, peak, rows = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds, peak, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--peer", metavar="PYTHON")
    chosen = parser.parse_args()
    runs = [(name, parts, sys.executable) for name, parts in RUNS.items()]
    if chosen.peer:
        runs.append(("Holistic Trace Analysis, load", PEER, chosen.peer))
    floor = None
    print(f"{'':32}{'s':>8}{'× floor':>9}{'peak MiB':>10}{'rows':>12}")
    for name, parts, python in runs:
        found = measure(chosen.trace, name, parts, python)
        if found is None:
            continue
        floor = floor or found[0]
        print(f"{name:32}{found[0]:8.2f}{found[0] / floor:9.2f}{found[1]:10.0f}{found[2]:12,}")


if __name__ == "__main__":
    main()
