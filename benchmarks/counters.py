"""Time the hardware counters of a Kineto trace with their operators, beside Holistic Trace Analysis (HTA).

    python benchmarks/counters.py TRACE.json[.gz] [--times 100] [--hta-python PATH] [--runs 3]

TRACE has events of CUPTI's range profiler (``cuda_profiler_range``). It is repeated ``--times`` times; both tools
answer the same question on the repeated trace, each in a process of its own: loading, then the frame of kernels
with operator stacks and counters. PATH is a Python with HolisticTraceAnalysis 0.5.0 and pandas 2.1. Times are
seconds of the fastest of ``--runs`` runs; HTA runs once. The ratio is HTA's time over ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from scale_kineto import scale

_OURS = """
import json, resource, sys, time
import opscope
begin = time.perf_counter()
profile = opscope.load(sys.argv[1])
load = time.perf_counter() - begin
begin = time.perf_counter()
rows = len(profile.counters(names="hta"))
answer = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"load": load, "answer": answer, "rows": rows, "MiB": peak}))
"""
_THEIRS = """
import json, os, resource, sys, time
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
from hta.trace_analysis import TraceAnalysis
from hta.common.trace import Trace
Trace._filter_irrelevant_gpu_kernels = lambda *_: None
begin = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
load = time.perf_counter() - begin
begin = time.perf_counter()
rows = len(analysis.get_cupti_counter_data_with_operators()[0])
answer = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"load": load, "answer": answer, "rows": rows, "MiB": peak}))
"""


def main() -> None:
    """Print a line for each tool, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument(
        "--hta-python", help="a Python that has HTA 0.5.0; without it only ours is timed"
    )
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "repeated.json"
        events = scale(chosen.trace, target, chosen.times)
        print(f"{chosen.trace.name}, {chosen.times} times: {events:,} events")
        ours = [_run(sys.executable, _OURS, target) for _ in range(chosen.runs)]
        best = min(ours, key=lambda one: one["load"] + one["answer"])
        _say("opscope", best)
        if chosen.hta_python:
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            theirs = _run(chosen.hta_python, _THEIRS, target, environment)
            _say("HTA", theirs)
            whole = [one["load"] + one["answer"] for one in (theirs, best)]
            ratio = theirs["answer"] / best["answer"]
            print(f"ratio of the answer {ratio:,.0f}, with loading {whole[0] / whole[1]:,.0f}")


def _run(python: str, code: str, target: Path, environment: dict[str, str] | None = None) -> dict:
    done = subprocess.run(
        [python, "-c", code, str(target)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def _say(name: str, one: dict) -> None:
    print(
        f"{name:8} load {one['load']:7.2f} s, answer {one['answer']:8.3f} s, {one['rows']:,} kernels,"
        f" {one['MiB']:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
