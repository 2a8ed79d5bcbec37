"""Measure reading a profile of ONNX Runtime against the floor of decoding it, each in a separate process.

Usage: python benchmarks/onnxruntime_read.py [PROFILE.json ...] [--events 1000000]

Without a profile, one of a million events is made: a model of 200 nodes, whose events have all fields that
ONNX Runtime 1.31 writes. The floor decodes every event to typed structs that it drops. Each figure has its
ratio to the floor, in CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import kineto_read

_STATS = {
    "main_thread": {
        "thread_pool_name": "session-1-intra-op", "thread_id": "139724388088704", "block_size": [1],
        "core": 0, "Distribution": 0, "DistributionEnqueue": 0, "Run": 11, "Wait": 8, "WaitRevoke": 0,
    },
    "sub_threads": {"139724175955648": {"num_run": 1, "core": 1}},
}  # fmt: skip
_MEMORY = (
    "mem_bytes_requested_in_use", "mem_requested_in_use_delta", "mem_arena_held", "mem_in_use_delta",
    "mem_bytes_in_use", "mem_in_use_peak", "mem_arena_held_delta",
)  # fmt: skip
NODES = 200
RUNS = {
    "floor: decode and forget": (
        "from pathlib import Path\n"
        "from opscope.readers.kineto.json_events import KinetoFile\n"
        "from opscope.readers.onnxruntime.events import _decoded, _gap",
        "count = sum(map(len, KinetoFile(Path(path), decode=_decoded, gap=_gap).blocks()))",
        "count",
    ),
    "decode to one frame": (
        "from opscope.readers.onnxruntime import events",
        "frame = events.read(path).frame",
        "len(frame)",
    ),
    "read": (
        "from opscope import readers\nfrom opscope.readers.onnxruntime import reader",
        "trace = readers.open(path)",
        "sum(map(len, trace.tables.values()))",
    ),
    "read, attribute, summary": (
        "import opscope.profile",
        "summary = opscope.profile.load(path).summary()",
        "summary['steps'][0]",
    ),
}


def made(path: Path, events: int) -> Path:
    """Write a profile of ``events`` events, as many runs of a model of NODES nodes as that needs."""
    args = [
        json.dumps({
            "input_type_shape": [{"float": [8, 64 + n, 14, 14]}, {"float": [64, 64 + n, 3, 3]}],
            "output_type_shape": [{"float": [8, 64, 14, 14]}], "activation_size": "401408",
            "parameter_size": "147456", "output_size": "401408", "op_name": ("Conv", "Relu")[n % 2],
            "provider": "CPUExecutionProvider", "node_index": str(n), "thread_scheduling_stats": _STATS,
            **dict.fromkeys(_MEMORY, "1049704"),
        })
        for n in range(NODES)
    ]  # fmt: skip
    begin = (
        '{"cat" : "%s","pid" :7,"tid" :7,"dur" :%d,"ts" :%d,"ph" : "X","name" :"%s","args" : %s}'
    )
    at = 0
    with path.open("w") as file:
        file.write("[\n" + begin % ("Session", 5, 0, "session_initialization", "{}"))
        for number in range(events - 1):
            place = number % (NODES + 1)
            if place == 0:
                at += 10
                file.write(",\n" + begin % ("Session", NODES * 10 + 4, at, "model_run", "{}"))
                at += 2
                continue
            name = f"/layer{place // 20}/conv{place}/Conv_kernel_time"
            file.write(",\n" + begin % ("Node", 9, at, name, args[place - 1]))
            at += 10
        file.write("\n]\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profiles", type=Path, nargs="*", metavar="PROFILE")
    parser.add_argument("--events", type=int, default=1_000_000)
    chosen = parser.parse_args()
    runs = [(name, parts, sys.executable) for name, parts in RUNS.items()]
    with tempfile.TemporaryDirectory() as folder:
        there = chosen.profiles or [made(Path(folder) / "profile.json", chosen.events)]
        for path in there:
            print(f"{path.stat().st_size / 1e6:.0f} MB")
            kineto_read.compare(path, runs)


if __name__ == "__main__":
    main()
