"""Kineto beside the recorder: probes found, clocks joined, threads named alike; no GPU needed."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import opscope.backends as backends
from opscope.backends import beside, kineto
from opscope.backends.recorded_part import read_part
from opscope.backends.recorder import collect
from opscope.core import session
from opscope.core.session import SessionError
from opscope.core.trace import Trace

AHEAD = 1_700_000_000_000_000_000
DRIFT = 20e-6


def theirs(ours: int) -> int:
    """A time of the recorder's clock on the profiler's: far ahead, and running fast."""
    return AHEAD + ours + round(ours * DRIFT)


class FakeGpu:
    """Stands for CUDA and for torch.profiler: keeps the calls made, on a clock of its own."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self.on = False
        self.number = itertools.count(1)
        self.fail = False

    def call(self, name: str) -> int:
        start = time.perf_counter_ns()
        correlation = next(self.number)
        while time.perf_counter_ns() < start + 400:
            pass
        if self.on:
            low = threading.get_ident() & 0xFFFFFFFF
            self.calls.append(
                {
                    "process": 0,
                    "thread": low - (1 << 32) if low >> 31 else low,
                    "start": theirs(start),
                    "end": theirs(time.perf_counter_ns()),
                    "name": name,
                    "correlation": correlation,
                }
            )
        return correlation

    def launch(self) -> None:
        correlation = self.call("cudaLaunchKernel")
        start = self.calls[-1]["end"] + 1000
        self.kernels.append(
            {
                "process": 0,
                "start": start,
                "end": start + 777,
                "name": "k",
                "correlation": correlation,
            }
        )

    def probe(self) -> None:
        self.call(kineto.PROBE_CALL)

    def synchronize(self) -> None:
        self.call("cudaDeviceSynchronize")

    def watch(self, _give_way: Any) -> None:
        """No graph is captured here, and no other profiler begins."""

    def is_taken(self) -> bool:
        return False

    def prepare_trace(self) -> None:
        """Nothing to prepare."""

    def is_capturing(self) -> bool:
        return False

    def is_full(self) -> bool:
        return False

    def start_trace(self) -> None:
        if self.fail:
            raise RuntimeError("CUPTI is taken")
        self.on = True

    def stop_trace(self) -> None:
        self.on = False

    def export_chrome_trace(self, path: str) -> None:
        """As Kineto writes it: times in µs after a base in ns."""
        base = AHEAD

        def event(category: str, row: dict[str, Any], **args: Any) -> dict[str, Any]:
            return {
                "ph": "X",
                "cat": category,
                "name": row["name"],
                "pid": os.getpid(),
                "tid": row.get("thread", 7),
                "ts": (row["start"] - base) / 1000,
                "dur": (row["end"] - row["start"]) / 1000,
                "args": {"correlation": row["correlation"], "External id": 0, **args},
            }

        calls = [event("cuda_runtime", row) for row in self.calls]
        kernels = [event("kernel", row, device=0, context=1, stream=7) for row in self.kernels]
        Path(path).write_text(
            json.dumps(
                {
                    "schemaVersion": 1,
                    "deviceProperties": [],
                    "baseTimeNanoseconds": base,
                    "traceEvents": calls + kernels,
                }
            )
        )

    def trace(self) -> Trace:
        unix = pl.DataFrame({"clock_domain": [0], "kind": ["unix"], "to_unix_ns": [0]})
        return Trace.of(
            {
                "calls": pl.DataFrame(self.calls),
                "kernels": pl.DataFrame(self.kernels),
                "clocks": unix,
            },
            {"format": "kineto"},
        )


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    session.stop()
    session.listen(None)


@pytest.fixture
def unix_as_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Unix clock agrees with the fake profiler's to within some milliseconds, as in life."""
    monkeypatch.setattr(
        "opscope.core.record.read_clock",
        lambda: (now := time.perf_counter_ns(), theirs(now) + 3_000_000, 100),
    )


def captured(tmp_path: Path, gpu: FakeGpu) -> Path:
    emitter = session.emitter("torch")
    op = emitter.prepare("op", "forward")
    session.start(kineto.KinetoCapture(tmp_path / "rec", lambda: gpu, gpu))
    for number in range(40):
        emitter.push(op, number, 1)
        gpu.launch()
        gpu.probe()  # the program asks the same question itself
        emitter.pop()
        gpu.launch()  # outside of any op
    session.stop()
    (part,) = (tmp_path / "rec").iterdir()
    return part


@pytest.mark.usefixtures("unix_as_fake")
def test_launches_fall_into_the_ranges_that_made_them(tmp_path: Path) -> None:
    gpu = FakeGpu()
    part = captured(tmp_path, gpu)
    assert (part / kineto.TRACE).exists()
    merged = kineto.merge(read_part(part), gpu.trace())
    ranges = merged["ranges"]
    launches = merged["calls"].filter(pl.col("name").cast(pl.String) == "cudaLaunchKernel")
    assert launches.height == 80
    assert launches["thread"].unique().to_list() == [threading.get_native_id()]
    inside = launches.join_where(
        ranges.select("seq", first="start", last="end"),
        pl.col("start") >= pl.col("first"),
        pl.col("start") < pl.col("last"),
    )
    assert inside["seq"].to_list() == list(range(40))
    assert inside["correlation"].to_list() == launches["correlation"].to_list()[::2]
    assert (merged["kernels"]["end"] - merged["kernels"]["start"]).to_list() == [777] * 80
    clock = merged["clocks"].filter(pl.col("kind") == "kineto").row(0, named=True)
    assert (
        clock["error_ns"] < 100_000
    )  # a busy machine may interrupt a bracket; a GPU box has < 1000
    assert "probes" in merged["notes"]["what"][-1]
    assert "probes" not in merged.origin


@pytest.mark.usefixtures("unix_as_fake")
def test_collected_from_the_disk_the_kernels_are_there(tmp_path: Path) -> None:
    pytest.importorskip("opscope.readers.kineto")
    gpu = FakeGpu()
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


@pytest.mark.usefixtures("unix_as_fake")
def test_without_probes_the_unix_clock_is_used_and_said(tmp_path: Path) -> None:
    gpu = FakeGpu()
    part = captured(tmp_path, gpu)
    gpu.calls = [call for call in gpu.calls if call["name"] != kineto.PROBE_CALL]
    merged = kineto.merge(read_part(part), gpu.trace())
    (note,) = merged["notes"].filter(pl.col("severity") == "warning")["what"]
    assert "Unix clock" in note
    start = merged["kernels"]["start"][0] - merged["ranges"]["start"][0]
    assert abs(start) < 50_000_000


def test_probes_come_again_with_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "PROBE_NS", 0)
    gpu = FakeGpu()
    session.start(kineto.KinetoCapture(tmp_path / "rec", lambda: gpu, gpu))
    for _ in range(3):
        session.step()
    session.stop()
    session.step()
    (part,) = (tmp_path / "rec").iterdir()
    probes = read_part(part).origin["probes"]
    asked = [call for call in gpu.calls if call["name"] == kineto.PROBE_CALL]
    assert len(probes) == len(asked) > 2 * beside.PROBES
    assert {thread for _, _, thread in probes} == {threading.get_native_id()}


def test_a_profiler_that_cannot_start_leaves_nothing_running(tmp_path: Path) -> None:
    gpu = FakeGpu()
    gpu.fail = True
    with pytest.raises(SessionError, match="CUPTI is taken"):
        session.start(kineto.KinetoCapture(tmp_path / "rec", lambda: gpu, gpu))
    assert session.capturing() is None
    assert session.recorder() is None


def test_a_profiler_that_fails_at_the_end_leaves_the_ranges(tmp_path: Path) -> None:
    gpu = FakeGpu()

    def broken() -> None:
        raise RuntimeError("lost the GPU")

    gpu.stop_trace = broken  # type: ignore[method-assign]
    part = captured(tmp_path, gpu)
    trace = read_part(part)
    assert trace["ranges"].height == 40
    assert "lost the GPU" in " ".join(trace["notes"]["what"])
    assert not (part / kineto.TRACE).exists()


# --- which backend


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(gpu: bool, torch: bool, nsys: bool, in_process: bool, **environ: str) -> str:
        monkeypatch.setattr(backends, "has_gpu", lambda *_: gpu)
        monkeypatch.setattr(backends, "has_torch", lambda: torch)
        monkeypatch.setattr(
            backends.shutil, "which", lambda *_, **__: "/bin/nsys" if nsys else None
        )
        monkeypatch.setattr(backends.sys, "modules", {})
        choice = backends.choose(in_process, environ)
        assert choice.reason
        return choice.name

    assert choose(True, True, True, False, NSYS_PROFILING_SESSION_ID="1") == "emit"
    assert (
        choose(True, True, True, False, NVTX_INJECTION64_PATH="/opt/nsight-systems/x.so") == "emit"
    )
    assert choose(True, True, True, False) == "nsys"
    assert choose(True, True, True, True) == "kineto"
    assert choose(True, True, False, False) == "kineto"
    assert choose(True, False, False, False) == "recorder"
    assert choose(False, True, True, False) == "recorder"


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


def test_nothing_of_this_loads_a_framework() -> None:
    import subprocess
    import sys

    code = (
        "import sys, json; from opscope.core import session; from opscope import backends;"
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
    gpu = FakeGpu()
    gpu.fail = True
    monkeypatch.setattr(backends, "choose", lambda: backends.Choice("kineto", "a test"))
    monkeypatch.setattr(kineto, "_torch_profiler", lambda: gpu)
    monkeypatch.setattr(kineto, "_TorchCuda", lambda: gpu)
    assert backends.begin(tmp_path / "rec").name == "recorder"
    with session.annotate("still seen"):
        pass
    session.stop()
    parts = [read_part(part) for part in sorted((tmp_path / "rec").iterdir())]
    assert sum(part["ranges"].height for part in parts) == 1
    assert any("CUPTI is taken" in what for part in parts for what in part["notes"]["what"])
    with pytest.raises(SessionError, match="CUPTI is taken"):
        backends.begin(tmp_path / "named", "kineto")
    with pytest.raises(ValueError, match="no backend"):
        backends.begin(tmp_path / "named", "magic")
