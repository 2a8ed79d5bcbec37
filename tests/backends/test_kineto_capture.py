"""Kineto beside the recorder: probes found, clocks joined, threads named alike; no GPU needed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import opscope.backends as backends
from opscope.backends import beside, machine
from opscope.backends import kineto_capture as kineto
from opscope.backends.machine import Machine
from opscope.core.capture import session
from opscope.core.capture.probes import PROBES
from opscope.core.capture.session import SessionError
from opscope.core.recording_format import KINETO
from opscope.core.tables.trace import Trace
from opscope.readers.kineto import reader
from opscope.readers.recording.process_part import read_part
from opscope.readers.recording.reader import collect
from opscope.readers.recording.with_kineto import merge
from tests.fake_cuda import FakeCuda


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    session.stop()
    session.listen(None)


def captured(tmp_path: Path, gpu: FakeCuda) -> Path:
    emitter = session.emitter("torch")
    op = emitter.prepare("op", "forward")
    session.start(kineto.KinetoCapture(tmp_path / "rec", lambda: gpu, gpu))
    for number in range(40):
        emitter.push(op, number, 1)
        gpu.launch()
        if number % 4 == 0:
            gpu.probe()  # the program asks the same question itself
        emitter.pop()
        gpu.launch()  # outside of any op
    session.stop()
    (part,) = (tmp_path / "rec").iterdir()
    return part


def merged(part: Path) -> Trace:
    return merge(read_part(part), reader.read(part / KINETO))


def test_launches_fall_into_the_ranges_that_made_them(tmp_path: Path) -> None:
    gpu = FakeCuda()
    part = captured(tmp_path, gpu)
    trace = merged(part)
    ranges = trace["ranges"]
    launches = trace["calls"].filter(pl.col("name").cast(pl.String) == "cudaLaunchKernel")
    assert launches.height == 80
    assert launches["thread"].unique().to_list() == [threading.get_native_id()]
    inside = launches.join_where(
        ranges.select("seq", first="start", last="end"),
        pl.col("start") >= pl.col("first"),
        pl.col("start") < pl.col("last"),
    )
    assert inside["seq"].to_list() == list(range(40))
    assert inside["correlation"].to_list() == launches["correlation"].to_list()[::2]
    assert (trace["kernels"]["end"] - trace["kernels"]["start"]).to_list() == [777] * 80
    assert trace["kernels"]["graph_node"].null_count() == 80
    assert "probes" in trace["notes"]["what"][-1]
    assert "probes" not in trace.origin


def test_no_launch_is_farther_from_its_time_than_the_clocks_stated_error(tmp_path: Path) -> None:
    gpu = FakeCuda(seed=3)
    trace = merged(captured(tmp_path, gpu))
    placed = trace["calls"].sort("start").select("correlation", "start")
    (error,) = trace["clocks"].filter(pl.col("kind") == "kineto")["error_ns"]
    true = {call.correlation: call.start for call in gpu.calls}
    for correlation, start in placed.rows():
        assert abs(gpu.theirs(start) - true[correlation]) <= error + 2  # rounded there and here


def test_collected_from_the_disk_the_kernels_are_there(tmp_path: Path) -> None:
    gpu = FakeCuda()
    captured(tmp_path, gpu)
    trace = collect(tmp_path / "rec")
    assert trace["kernels"].height == 80
    assert trace["processes"].height == 1
    launches = trace["calls"].filter(pl.col("name").cast(pl.String) == "cudaLaunchKernel")
    inside = launches.sort("start").join_where(
        trace["ranges"].select("seq", first="start", last="end"),
        pl.col("start") >= pl.col("first"),
        pl.col("start") < pl.col("last"),
    )
    assert inside["seq"].sort().to_list() == list(range(40))
    assert launches.join(trace["kernels"], on=["process", "correlation"]).height == 80


def test_without_probes_the_unix_clock_is_used_and_said(tmp_path: Path) -> None:
    gpu = FakeCuda()
    gpu.probe = lambda: False  # type: ignore[method-assign]  # no runtime was found
    trace = merged(captured(tmp_path, gpu))
    (note,) = trace["notes"].filter(pl.col("severity") == "warning")["what"]
    assert "Unix clock" in note
    start = trace["kernels"]["start"][0] - trace["ranges"]["start"][0]
    assert abs(start) < 50_000_000


def test_probes_come_again_with_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "PROBE_NS", 0)
    gpu = FakeCuda()
    session.start(kineto.KinetoCapture(tmp_path / "rec", lambda: gpu, gpu))
    for _ in range(3):
        session.step()
    session.stop()
    session.step()
    (part,) = (tmp_path / "rec").iterdir()
    probes = read_part(part).origin["probes"]
    asked = [call for call in gpu.calls if call.name == "cudaDriverGetVersion"]
    assert len(probes) == len(asked) > 2 * PROBES
    assert {thread for _, _, thread in probes} == {threading.get_native_id()}


def test_a_profiler_that_cannot_start_leaves_nothing_running(tmp_path: Path) -> None:
    gpu = FakeCuda()
    gpu.fail_start = RuntimeError("CUPTI is taken")
    with pytest.raises(SessionError, match="CUPTI is taken"):
        session.start(kineto.KinetoCapture(tmp_path / "rec", lambda: gpu, gpu))
    assert session.capturing() is None
    assert session.recorder() is None


def test_a_profiler_that_fails_at_the_end_leaves_the_ranges(tmp_path: Path) -> None:
    gpu = FakeCuda()
    gpu.fail_stop = RuntimeError("lost the GPU")
    part = captured(tmp_path, gpu)
    trace = read_part(part)
    assert trace["ranges"].height == 40
    assert "lost the GPU" in " ".join(trace["notes"]["what"])
    assert not (part / KINETO).exists()


# --- which backend


def test_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def choose(gpu: str | None, torch: bool, nsys: bool, in_process: bool, **environ: str) -> str:
        monkeypatch.setattr(machine.shutil, "which", lambda *_, **__: "/bin/nsys" if nsys else None)
        packages = {"nvtx", *(["torch"] if torch else [])}
        here = Machine(
            environ, tmp_path, in_process=in_process, modules={}, packages=packages, gpu=gpu
        )
        choice = backends.choose(machine=here)
        assert choice.reason
        return choice.name

    under = {"NSYS_PROFILING_SESSION_ID": "1", "QUADD_INJECTION_PROXY": "Mmap,OSRT"}
    tool = tmp_path / "nsight-systems" / "libToolsInjection64.so"
    tool.parent.mkdir()
    tool.touch()
    assert choose("nvidia", True, True, False, **under, NVTX_INJECTION64_PATH=str(tool)) == "emit"
    assert choose("nvidia", True, True, False, NVTX_INJECTION64_PATH=str(tool)) == "emit"
    # without -t nvtx there is no such path: it hears nothing
    assert choose("nvidia", True, True, False, **under) == "recorder"
    gone = str(tmp_path / "nsight-systems" / "gone.so")
    assert choose("nvidia", True, True, False, **under, NVTX_INJECTION64_PATH=gone) == "recorder"
    deaf = {**under, "NVTX_INJECTION64_PATH": str(tool), "NVTX_DISABLE": "1"}
    assert choose("nvidia", True, True, False, **deaf) == "recorder"
    assert choose("nvidia", True, True, False) == "nsys"
    assert choose("nvidia", True, True, True) == "kineto"
    assert choose("nvidia", True, False, False) == "kineto"
    assert choose("nvidia", False, False, False) == "recorder"
    assert choose(None, True, True, False) == "recorder"
    assert choose("amd", True, True, False) == "kineto", "nsys sees NVIDIA's alone"
    assert choose("amd", False, True, False) == "recorder"


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"cuda": "13.0", "hip": None}, "kineto"),
        ({"cuda": None, "hip": "7.1.25424"}, "kineto"),
        ({"cuda": None, "hip": None}, "recorder"),
        ({"cuda": None}, "recorder"),
    ],
)
def test_a_build_of_pytorch_for_either_platform_gives_kernels(
    versions: dict[str, str | None], chosen: str
) -> None:
    torch = SimpleNamespace(version=SimpleNamespace(**versions))
    gpu = "amd" if versions.get("hip") else "nvidia"
    here = Machine({}, modules={"torch": torch}, packages=(), gpu=gpu)
    assert backends.choose(machine=here).name == chosen


def test_a_capture_that_nsight_does_not_hear_is_made_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import opscope
    from opscope.backends.profile_capture import capture

    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    with capture(tmp_path / "a.opscope"), session.annotate("heard by us"):
        pass
    profile = opscope.load(tmp_path / "a.opscope")
    assert profile.trace["ranges"]["text"].cast(str).to_list() == ["heard by us"]
    assert "without -t nvtx" in caplog.text
    assert "without -t nvtx" in " ".join(profile.notes()["what"].cast(str).to_list())


def test_emit_without_a_tool_says_that_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from opscope.backends.profile_capture import capture

    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    with capture(tmp_path / "a.opscope", backend="emit"):
        pass
    assert "nothing is recorded" in caplog.text
    assert not (tmp_path / "a.opscope").exists()


def test_gpu_is_seen_without_asking_the_driver(tmp_path: Path) -> None:
    assert not backends.has_gpu({}, tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert not backends.has_gpu({}, tmp_path)
    (tmp_path / "dev" / "nvidia0").touch()
    assert backends.has_gpu({}, tmp_path)
    assert backends.has_gpu({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path)
    for hidden in ("", "-1"):
        assert not backends.has_gpu({"CUDA_VISIBLE_DEVICES": hidden}, tmp_path)
    assert backends.has_gpu({"HIP_VISIBLE_DEVICES": "-1"}, tmp_path), "that is AMD's"


def test_an_amd_gpu_is_one(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kfd").touch()
    assert backends.gpu_vendor({}, tmp_path) == "amd"
    assert backends.gpu_vendor({"ROCR_VISIBLE_DEVICES": "0,1"}, tmp_path) == "amd"
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        assert backends.gpu_vendor({name: "-1"}, tmp_path) is None
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for node, simds in (("0", 0), ("1", 304)):
        (nodes / node).mkdir(parents=True)
        (nodes / node / "properties").write_text(f"cpu_cores_count 96\nsimd_count {simds}\n")
        assert backends.has_gpu({}, tmp_path) == bool(simds), "a CPU is a node of the driver's too"


def test_nothing_of_this_loads_a_framework() -> None:
    import subprocess
    import sys

    code = (
        "import sys, json; from opscope.core.capture import session; from opscope import backends;"
        "from opscope.callbacks.steprange import StepRange; session.emitter('torch'); session.step();"
        "backends.choose();"
        "print(json.dumps([m for m in ('torch', 'polars', 'tensorflow', 'jax') if m in sys.modules]))"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == []


def test_auto_falls_back_to_the_recorder_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeCuda()
    gpu.fail_start = RuntimeError("CUPTI is taken")
    with_gpu = Machine({}, modules={}, packages=("torch",), gpu="nvidia")
    monkeypatch.setattr(backends.best, "here", lambda *_, **__: with_gpu)
    monkeypatch.setattr(kineto, "_torch_profiler", lambda: gpu)
    monkeypatch.setattr(kineto, "_TorchCuda", lambda: gpu)
    # a CUDA toolkit may be on the machine that runs this
    monkeypatch.setattr("opscope.backends.cupti.library.here", lambda *_, **__: (None, "no CUPTI"))
    choice = backends.begin(tmp_path / "rec")
    assert choice.name == "recorder"
    assert dict(choice.better)["kineto"] == (
        "it could not start: torch.profiler cannot start: CUPTI is taken"
    )
    assert "kernels are not captured" in choice.reason
    with session.annotate("still seen"):
        pass
    session.stop()
    parts = [read_part(part) for part in sorted((tmp_path / "rec").iterdir())]
    assert sum(part["ranges"].height for part in parts) == 1
    assert any("CUPTI is taken" in what for part in parts for what in part["notes"]["what"])
    (told,) = collect(tmp_path / "rec").origin["backends"]
    assert told["backend"] == "recorder"
    assert told["reason"] == choice.reason
    assert {"backend": "kineto", "why": dict(choice.better)["kineto"]} in told["better"]
    with pytest.raises(SessionError, match="CUPTI is taken"):
        backends.begin(tmp_path / "named", "kineto")
    with pytest.raises(ValueError, match="no backend"):
        backends.begin(tmp_path / "named", "magic")


@pytest.mark.parametrize("left", [b"", b"{", b'{"traceEvents": []}'])
def test_a_trace_of_the_profiler_that_cannot_be_read_costs_the_kernels_and_no_range(
    tmp_path: Path, left: bytes
) -> None:
    part = captured(tmp_path, FakeCuda())
    (part / KINETO).write_bytes(left)
    trace = collect(tmp_path / "rec")
    assert trace["ranges"].height == 40
    assert not trace.has("kernels")
    assert trace.origin["gpu"]  # so that CPU time does not stand for the device's
    told = trace["notes"].filter(pl.col("severity") == "error")["what"].to_list()
    assert len(told) == 1
    assert told[0].startswith("kernels not captured: ")


def test_an_empty_trace_of_the_profiler_is_no_kernels_and_a_note(tmp_path: Path) -> None:
    part = captured(tmp_path, FakeCuda())
    head = json.loads((part / KINETO).read_bytes())
    head["traceEvents"] = []
    (part / KINETO).write_text(json.dumps(head))
    trace = collect(tmp_path / "rec")
    assert trace["ranges"].height == 40
    assert trace["kernels"].height == 0
    told = trace["notes"]["what"].to_list()
    assert "the profiler recorded nothing: the trace has no events" in told
