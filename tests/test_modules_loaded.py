"""Which modules a command loads: none of another vendor, of another command, or of the program's side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

ROOT = Path(opscope.__file__).resolve().parents[1]
RUN = """
import contextlib, io, runpy, sys
sys.argv[0] = "opscope"
shown = io.StringIO()
with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
    runpy.run_module("opscope", run_name="__main__")
assert "aten::mm" in shown.getvalue(), shown.getvalue()
print(*(name for name in sys.modules if name.partition(".")[0] == "opscope"))
"""
#: Rooms of which the report of a trace of PyTorch's profiler needs nothing.
OTHERS = (
    "adapters", "backends", "core.capture", "core.cupti", "core.hlo", "core.onnx", "core.perf.hlo",
    "core.perf.nodes", "exports", "viewer", "cli.dlprof", "readers.recording", "readers.xplane",
    "readers.ncu", "readers.nsys", "readers.nvprof", "readers.dlprof", "readers.rocm", "readers.onnxruntime",
    "readers.tensorrt", "readers.mindspore", "core.dialects.mindspore", "core.dialects.tensorrt",
    "core.dialects.tsl", "core.dialects.hlo", "core.dlprof", "core.pyprof",
)  # fmt: skip
#: The most modules of all rooms together: 668 before questions, readers and costs were loaded one by one. The first
#: screen loads the detectors alone whose findings the diagnosis may show.
ALL = 300
#: Of these a part is needed: the most modules that may be loaded of each.
MOST = {
    "callbacks": 1,  # a part of ``import opscope``
    "cli": 14,
    "core.attribution": 31,  # steps that no mark shows are looked for in any trace
    "core.dialects": 9,
    "core.job": 8,
    "core.perf": 28,
    "core.perf.ops": 4,
    "core.tables": 20,  # impossible times are clipped in any trace
    "readers": 32,
    "scale": 2,  # its errors
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> list[str]:
    """The modules of opscope that ``opscope report`` of a small trace loads, without ``opscope.``."""
    args = {"External id": 1, "correlation": 7}
    shapes = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"], "External id": 1}
    events = [
        ("cpu_op", "aten::mm", 10, 20, 1, 1, shapes),
        ("cuda_runtime", "cudaLaunchKernel", 12, 5, 1, 1, args),
        ("kernel", "sgemm", 40, 9, 0, 7, {**args, "device": 0, "stream": 7}),
    ]
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}],
        "traceEvents": [
            {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": more}
            for cat, name, ts, dur, pid, tid, more in events
        ],
    }  # fmt: skip
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_text(json.dumps(trace))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, "report", str(path)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [name.removeprefix("opscope.") for name in done.stdout.split()]


def of_room(room: str, modules: list[str]) -> list[str]:
    return sorted(name for name in modules if name == room or name.startswith(room + "."))


@pytest.mark.parametrize("room", OTHERS)
def test_a_report_loads_nothing_of_another_vendor_or_of_the_program_s_side(modules, room):
    assert of_room(room, modules) == []


@pytest.mark.parametrize("room", MOST)
def test_a_report_loads_few_modules_of_a_room(modules, room):
    loaded = of_room(room, modules)
    assert len(loaded) <= MOST[room], loaded


def test_a_report_loads_few_modules_in_all(modules):
    assert len(modules) <= ALL


def test_a_report_loads_no_other_command(modules):
    from opscope.cli.commands import KNOWN

    rooms = {
        f"cli.{known.place.partition(':')[0]}" for name, known in KNOWN.items() if name != "report"
    }
    assert rooms & set(modules) == set()
