"""gpu_check.sh's programs and comparisons, as far as they go without a GPU."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import opscope
from opscope.profile import Profile
from tests.script import module_at

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"

results, programs = module_at("scripts/gpu_results.py"), module_at("scripts/gpu_programs.py")


def op(name, start, end, thread=1, **more):
    return {"process": 0, "thread": thread, "domain": "opscope.torch", "category": "forward",
            "kind": "pushpop", "text": name, "start": start, "end": end, **more}  # fmt: skip


def call(name, start, correlation):
    return {"process": 0, "thread": 1, "name": name, "start": start, "end": start + 1,
            "correlation": correlation}  # fmt: skip


def kernel(name, start, correlation, stream=7):
    return {"process": 0, "device": 0, "name": name, "start": start, "end": start + 10,
            "correlation": correlation, "stream": stream}  # fmt: skip


def test_the_flops_of_bf16_amp_are_those_that_pytorch_counts(tmp_path):
    file = tmp_path / "amp.json"
    subprocess.run(
        [sys.executable, "-m", "opscope", "run", "--no-report", "-o", str(tmp_path / "amp"), "--",
         sys.executable, str(SCRIPTS / "gpu_programs.py"), "amp", str(file), "cpu"],
        check=True, capture_output=True,
    )  # fmt: skip
    known = json.loads(file.read_text())
    profile = opscope.load(tmp_path / "amp.opscope")
    (passed,) = results.flops(profile, known).values()
    assert passed
    (passed,) = results.flops(profile, {"matrix_flops": 1.02 * known["matrix_flops"]}).values()
    assert not passed
    checks = results.amp(profile, known)
    assert checks["all steps were seen"]
    assert not checks["kernels were captured"]


def test_attribution_is_compared_with_the_launched_time(trace_of):
    def checks(last):
        trace = trace_of(
            ranges=[op("aten::mm(f32[2,2], f32[2,2])", 0, 20)],
            calls=[call("cudaLaunchKernel", 5, 1), call("cudaLaunchKernel", last, 2)],
            kernels=[kernel("k", 50, 1), kernel("k", 60, 2), kernel("lost", 90, 3)],
        )
        return list(results.attribution(Profile(trace)).values())

    assert checks(6) == [True, True, True]
    assert checks(30) == [True, False, True]


def test_two_graphs_that_are_replayed_in_turn(trace_of):
    def checks(third):
        def named(what, number, start, end):
            text = f"CUDA graph {number} {what}"
            return op(text, start, end, category="graph")

        replays = [
            named("replay", n, 100 + 10 * k, 108 + 10 * k) for k, n in enumerate((1, 2, third, 2))
        ]
        trace = trace_of(
            ranges=[
                named("capture", 1, 1, 20),
                op("aten::mm(f32[2,2], f32[2,2])", 4, 10),
                op("aten::mm(f32[2,2], f32[2,2])", 12, 18, category="backward"),
                named("capture", 2, 30, 50),
                op("aten::add(f32[2], f32[2])", 34, 40),
                op("aten::add(f32[2], f32[2])", 42, 48, category="backward"),
                *replays,
            ],
            calls=[
                call("cudaStreamBeginCapture", 1, 1), call("cudaLaunchKernel", 5, 2),
                call("cudaLaunchKernel", 13, 3), call("cudaStreamEndCapture", 21, 4),
                call("cudaStreamBeginCapture", 29, 5), call("cudaLaunchKernel", 35, 6),
                call("cudaLaunchKernel", 43, 7), call("cudaStreamEndCapture", 51, 8),
                *(call("cudaGraphLaunch", 102 + 10 * k, 20 + k) for k in range(4)),
            ],
            kernels=[kernel("k", 200 + 30 * k + 12 * n, 20 + k) for k in range(4) for n in range(2)],
        )  # fmt: skip
        return results.graph(Profile(trace), {"graphs": 2, "replays": 4})

    assert all(checks(1).values())
    assert not all(checks(3).values())  # a graph that was captured before the recording


def test_streams_and_memory_against_what_is_known(trace_of):
    product = "aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]"
    trace = trace_of(
        ranges=[op(product, 0, 20), op("aten::relu(f32[64,64])", 20, 30), op("aten::add_(f32[64,64])", 30, 40)],
        calls=[call("cudaLaunchKernel", 5 + 15 * n, n) for n in range(3)],
        kernels=[kernel("k", 50 + 20 * n, n, stream=7 if n == 0 else 8) for n in range(3)],
        allocations=[
            {"process": 0, "device": 0, "thread": None, "time": 5, "address": 1, "bytes": 90,
             "total": 100, "reserved": 512},
            {"process": 0, "device": 0, "thread": None, "time": 22, "address": 1, "bytes": -90,
             "total": 10, "reserved": 512},
        ],
    )  # fmt: skip
    profile = Profile(trace)
    known = {"streams": 2, "matrix_flops": 2 * 64**3}
    assert all(results.streams(profile, known).values())
    assert not all(results.streams(profile, {**known, "streams": 3}).values())
    known = {"requested": 100, "reserved": 512, "in_use": 10}
    assert all(results.memory(profile, known).values())
    assert not all(results.memory(profile, {**known, "requested": 101}).values())


def test_a_compiled_region_must_tell_what_it_fuses(trace_of):
    def checks(params):
        region = [
            op('"Torch-Compiled Region: 0/0"()', start, start + 100, category=way)
            for start, way in ((0, "forward"), (200, "backward"))
        ]
        inner = [
            op(f"cpp_fused_add_0(f32[2]){params}", start, start + 10, category=way)
            for start, way in ((10, "forward"), (210, "backward"))
        ]
        note = {
            "severity": "info",
            "what": "torch.compile: graphs made since the program began",
            "how_many": 1,
        }
        trace = trace_of(ranges=[*region, *inner], notes=[note])
        return results.compiled(Profile(trace), {"graphs": 1, "breaks": 0})

    assert all(checks(' {fused="aten::add"} on cpu @/x/gpu_programs.py:3').values())
    assert not all(checks(' {fused="aten::add"}').values())
    assert not all(checks(" on cpu @/x/gpu_programs.py:3").values())


def test_a_program_that_left_nothing_has_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_results.py", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        results.main()
    assert ended.value.code == 1
    report = (tmp_path / "results.txt").read_text()
    assert report.count("FAIL") == len(results.CHECKS)
    assert set(results.CHECKS) - {"lenet"} == set(programs.PROGRAMS)


def test_what_it_costs_is_measured_for_each_variant(monkeypatch):
    monkeypatch.setitem(programs.SIZES, "cpu", (64, 1, 4, 1))
    monkeypatch.setattr(programs, "ROUNDS", 1)
    monkeypatch.setattr(programs, "TIMED", 2)
    found = programs.overhead("cpu")
    assert found["ratio"]["nothing"] == 1
    assert set(found["step_ms"]) == set(found["ratio"]) == set(found["spread"])
    assert all(
        results.overhead(
            None, {"ratio": {**found["ratio"], "torch.profiler, shapes": 1e9}}
        ).values()
    )
