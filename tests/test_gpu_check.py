"""gpu_check.sh's programs and comparisons, as far as they go without a GPU."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import opscope
from opscope.profile import Profile
from tests.script import module_at

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"

sys.path.insert(0, str(SCRIPTS))  # they import each other, as they do where they are run
results, programs = module_at("scripts/gpu_results.py"), module_at("scripts/gpu_programs.py")
cuda, check = module_at("scripts/gpu_programs_cuda.py"), module_at("scripts/gpu_check.py")
plain, cores = module_at("scripts/gpu_plain.py"), module_at("scripts/gpu_programs_cores.py")
together = module_at("scripts/gpu_backends.py")


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
         sys.executable, str(SCRIPTS / "gpu_programs.py"), "amp", str(file), "--device", "cpu"],
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
        return results.attribution(Profile(trace))

    every, captured, launched, adds_up = (
        "at least 99% of GPU time has an op",
        "kernels were captured",
        "at least 99% of launched kernel time has an op",
        "attributed + unattributed = total",
    )
    found = checks(6)
    assert (found[captured], found[launched], found[adds_up]) == (True, True, True)
    assert not found[every]  # one was launched by nobody
    assert found["the rest has a reason"]
    found = checks(30)
    assert (found[captured], found[launched], found[adds_up]) == (True, False, True)


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


def test_copies_of_replays_must_have_their_op(trace_of):
    def checks(known, kinds=("HtoD", "DtoD", "DtoH", "DtoH")):
        text = "aten::copy_(f32[4], f32[4])"
        trace = trace_of(
            ranges=[op(text, 20 * n, 20 * n + 10) for n in range(len(kinds))],
            calls=[call("cudaMemcpyAsync", 20 * n + 5, n) for n in range(len(kinds))],
            kernels=[kernel("k", 500, 0)],
            memops=[
                {"process": 0, "device": 0, "stream": 7, "start": 600 + n, "end": 601 + n, "bytes": 16,
                 "kind": kind, "correlation": n}
                for n, kind in enumerate(kinds)
            ],
        )  # fmt: skip
        found = results.copies(Profile(trace), {"replays": 1, "warm_up": 0, "bytes": 16, **known})
        return [held for what, held in found.items() if "copied to" in what or "right" in what]

    assert checks({"right": True}) == [True, True]
    assert checks({"right": False}) == [False, True]
    assert checks({"right": True}, ("HtoD", "DtoD", "DtoH")) == [True, False]


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


def test_a_program_that_left_nothing_has_failed(tmp_path):
    for name in results.CHECKS:
        checks, _ = results.checked(tmp_path, name)
        assert False in checks.values()


def test_each_case_has_a_program_and_is_compared():
    known = {*programs.PROGRAMS, *cuda.programs(programs), *cores.programs(programs)}
    for case in check.CASES:
        if case.script:
            assert (SCRIPTS / case.script).is_file()
        elif not case.example:
            program = case.program or case.name
            assert {program, case.plain or program} - {"steps", "window"} <= known
        else:
            assert (SCRIPTS.parent / "examples" / case.example).is_file()
        assert case.compare or case.name in results.CHECKS
        assert not case.compare or (SCRIPTS / case.compare).is_file()
        assert case.why
        assert set(case.runs) <= {"bare", "plain", "ours", "self", "counted", *check.BACKENDS}


def chrome(*kernels):
    return {"traceEvents": [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 100 + n, "dur": 1,
         "args": {"device": 0, "stream": 7, "correlation": n + 1}}
        for n, (name, _) in enumerate(kernels)
    ] + [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10 * n + 2,
         "dur": 1, "args": {"correlation": n + 1}}
        for n in range(len(kernels))
    ] + [
        {"ph": "X", "cat": "cpu_op", "name": op, "pid": 1, "tid": 1, "ts": 10 * n, "dur": 9, "args": {}}
        for n, (_, op) in enumerate(kernels)
    ]}  # fmt: skip


def test_kernels_are_held_against_those_of_the_profiler_alone(trace_of, tmp_path):
    def compared(theirs, times=1):
        path = tmp_path / "plain.trace.json"
        path.write_text(json.dumps(chrome(*theirs)))
        trace = trace_of(
            ranges=[
                op("aten::mm(f32[2,2], f32[2,2])", 0, 10),
                op("aten::sum.dim_IntList(f32[2])", 20, 30),
            ],
            calls=[call("cudaLaunchKernel", 5, 1), call("cudaLaunchKernel", 25, 2)],
            kernels=[kernel("gemm", 50, 1), kernel("reduce", 60, 2)],
        )
        checks, facts = plain.compared(Profile(trace), path, times)
        return list(checks.values()), facts

    same = [("gemm", "aten::mm"), ("reduce", "aten::sum")]
    assert compared(same) == ([True, True, True], [])
    (kernels, _, ops), facts = compared([("gemm", "aten::mm"), ("reduce", "aten::mean")])
    assert (kernels, ops) == (True, False)
    assert facts[0].startswith("another op: reduce of aten::sum, not of aten::mean")
    (kernels, _, ops), facts = compared([*same, ("gemm", "aten::mm")])
    assert (kernels, ops) == (False, True)
    assert facts[0] == "differs: gemm: 1 against 2"
    assert compared([("gemm", "aten::mm")], times=2)[0][0] is False


def test_a_program_must_compute_the_same_with_and_without_opscope():
    def checks(loss):
        known = {"loss": loss, "step_ms": 2.0, "bare": {"loss": 0.5, "step_ms": 1.0}}
        return results.same_result(known)

    assert checks(0.5) == (
        {"the program computes the same with opscope": True},
        ["ms a step: alone 1.000, opscope 2.000"],
    )
    assert checks(0.6)[0] == {"the program computes the same with opscope": False}


def test_the_check_can_be_rehearsed_without_a_gpu(tmp_path, monkeypatch):
    """Programs, archives and comparisons are run; only what needs kernels fails."""
    monkeypatch.setattr(check, "COMPARING", 3000)
    cases = [dataclasses.replace(one, seconds=3000) for one in check.CASES if one.name == "eager"]
    monkeypatch.setattr(check, "CASES", cases)
    out = tmp_path / "out"
    status = check.main([str(out), "--device", "cpu", "--case", "eager", "--scratch",
                         str(tmp_path / "scratch"), "--budget", "9000"])  # fmt: skip
    assert status == 1
    found = json.loads((out / "results.json").read_text())["cases"]["eager"]
    assert [one["ended"] for one in found["runs"].values()] == ["exit status 0"] * 3 + [
        "exit status 1"
    ]
    passed = {what for what, holds in found["checks"].items() if holds}
    assert {"all steps were seen", "the program computes the same with opscope"} <= passed
    assert not found["checks"]["kernels were captured"]
    assert "ms a step: alone" in (out / "results.txt").read_text()
    assert sorted(one.name for one in out.iterdir()) == [
        "logs.tar.gz", "results.json", "results.txt", "traces-1.tar",
    ]  # fmt: skip


def test_what_it_costs_is_measured_for_each_variant(monkeypatch, tmp_path):
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
    (tmp_path / "overhead.json").write_text(json.dumps(found))
    checks, facts = results.checked(tmp_path, "overhead")
    assert list(checks) == ["opscope costs no more than torch.profiler with shapes"]
    assert facts[0].endswith("nothing")
    assert len(facts) == len(found["ratio"])


def trace_with(kernels, notes=()):
    """Return tables with a product's kernel and others."""
    return {
        "ranges": [op("aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]", 10 * n, 10 * n + 9)
                   for n in range(len(kernels))],
        "calls": [call("cudaLaunchKernel", 10 * n + 2, n + 1) for n in range(len(kernels))],
        "kernels": [kernel(name, 100 + 20 * n, n + 1) for n, name in enumerate(kernels)],
    }  # fmt: skip


def test_backends_are_compared_with_each_other(trace_of, tmp_path):
    def compared(**of_way):
        for old in tmp_path.glob("p.*"):
            shutil.rmtree(old)
        for way, kernels in of_way.items():
            Profile(trace_of(**trace_with(kernels))).save(tmp_path / f"p.{way}.opscope")
        return together.checked(tmp_path, "p")

    checks, facts = compared(kineto=["a", "b", "a"], cupti=["b", "a", "a"])
    assert checks["kineto and cupti have the same kernels (3 and 3)"]
    assert checks["at least two backends recorded the program"]
    assert all(held for held in checks.values())
    assert "  10  10  a" in facts
    checks, facts = compared(kineto=["a", "b"], cupti=["a", "a"], nsys=["a", "b"])
    wrong = [what for what, held in checks.items() if held is False]
    assert wrong == [
        "kineto and cupti have the same kernels (2 and 2)",
        "cupti and nsys have the same kernels (2 and 2)",
    ]
    assert "kernels, kineto against cupti: a: 1 against 2" in facts
    checks, _ = compared(cupti=["a"])
    assert checks["at least two backends recorded the program"] is None
    checks, _ = compared()
    assert checks["a backend recorded the program"] is False


def test_a_backend_whose_profile_cannot_be_read_has_failed(trace_of, tmp_path):
    Profile(trace_of(**trace_with(["a"]))).save(tmp_path / "p.kineto.opscope")
    (tmp_path / "p.nsys.opscope").mkdir()
    checks, _ = together.checked(tmp_path, "p")
    (wrong,) = (what for what, held in checks.items() if held is False)
    assert wrong.startswith("nsys: its profile could be read (BadInput")


def test_tensor_core_flags_of_kernels_that_are_known_beforehand(trace_of):
    def checks(product, other):
        half = "aten::mm(bf16[64,64], bf16[64,64]) -> bf16[64,64]"
        whole = "aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]"
        texts = (half, whole, "aten::add.Tensor(f32[64,64], f32[64,64]) -> f32[64,64]")
        trace = trace_of(
            ranges=[op(text, 10 * n, 10 * n + 9) for n, text in enumerate(texts)],
            calls=[call("cudaLaunchKernel", 10 * n + 2, n + 1) for n in range(3)],
            kernels=[
                kernel(name, 100 + 20 * n, n + 1)
                for n, name in enumerate((product, other, "vectorized_elementwise_kernel<4, CUDAFunctor_add>"))
            ],
        )  # fmt: skip
        found = results.cores(Profile(trace), {"runs": 1})
        return [
            held
            for what, held in found.items()
            if "said" in what or "known" in what or "sums" in what
        ]

    tensor, plain_one = (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "sgemm_128x128_nn",
    )
    found = checks(tensor, plain_one)
    assert found[0]
    assert found[1]
    assert found[2] is not False
    assert not checks(plain_one, tensor)[0]
    assert not checks(plain_one, tensor)[1]


def test_modelled_flops_are_held_against_counted_ones(trace_of, tmp_path):
    from tests.readers.ncu import made

    def checks(counted, name="sm90_xmma_gemm_bf16bf16_bf16f32"):
        for old in tmp_path.glob("products.*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        text = "aten::mm(bf16[256,256], bf16[256,256]) -> bf16[256,256]"
        Profile(
            trace_of(
                ranges=[op(text, 0, 10)],
                calls=[call("cudaLaunchKernel", 5, 1)],
                kernels=[{**kernel(name, 50, 1), "grid": "2,1,1"}],
            )
        ).save(tmp_path / "products.opscope")
        metric = {"sm__ops_path_tensor_src_bf16_dst_fp32.sum": ("inst", str(counted))}
        values = {
            f"smsp__sass_thread_inst_executed_op_{p}{kind}_pred_on.sum": ("inst", "0")
            for p in "dfh" for kind in ("add", "mul", "fma")
        }  # fmt: skip
        (tmp_path / "products.ncu.csv").write_text(
            made.long([(made.about(0, name), {**metric, **values})])
        )
        return [*results.products(results.loaded(tmp_path, "products"), {}).values()]

    assert checks(2 * 256**3) == [True, True, True]
    assert checks(2.2 * 256**3) == [False, True, True]
    assert checks(2 * 256**3, "sgemm_128x128_nn")[2] is False
    (tmp_path / "products.ncu.csv").unlink()
    assert list(results.products(results.loaded(tmp_path, "products"), {}).values()) == [None]


def test_a_backend_that_is_not_here_is_no_failure(tmp_path, monkeypatch):
    made = check.Check(tmp_path / "out", tmp_path / "scratch", [], 600, "cpu")
    made.scratch.mkdir()
    case = check.Case("eager_backends", "backends", program="eager", runs=check.BACKENDS,
                      compare="gpu_backends.py")  # fmt: skip
    made.absent = made.missing_backends()
    assert set(made.absent) == set(check.BACKENDS)  # no GPU is here
    result = made.one(case)
    assert all(
        one["ended"].startswith("not here: ") for one in result.runs.values() if one["seconds"] == 0
    )
    assert result.checks["a backend recorded the program"] is False
