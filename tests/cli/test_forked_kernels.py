"""Forked processes that use a GPU themselves: their kernels are recorded, or said to be missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from opscope.profile import Profile, load
from opscope.readers.recording.reader import collect

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import multiprocessing, os, sys, types
sys.path.insert(0, {root!r})
from pathlib import Path
from opscope.backends import kineto_capture as kineto
from opscope.backends.kineto import KinetoBackend
from opscope.cli import child, child_capture
from opscope.core.capture import session
from tests.cuda_stand_in import Cuda, Profiler, StandIn

gpu, waiting = StandIn(), []
gpu.begun = False
gpu.torch.cuda.is_initialized = lambda: gpu.begun
sys.modules["torch.cuda"] = gpu.torch.cuda
kineto._torch_profiler = lambda: Profiler(gpu)
kineto._TorchCuda = lambda: Cuda(gpu)
folder = Path(sys.argv[1])

class OnStandIn(KinetoBackend):
    def in_use(self):
        return gpu.begun

    def when_used(self, what):
        waiting.append(what)

class Run(child_capture.RecordingWithMore):
    def __init__(self, folder):
        super().__init__(folder, backends=[OnStandIn()])

def use_the_gpu(kernels):
    gpu.begun = True
    for what in waiting:
        what()
    op = session.emitter("torch").prepare("aten::relu(f32[4]) -> f32[4]", "forward")
    for _ in range(kernels):
        session.emitter("torch").push(op)
        gpu.launch()
        session.emitter("torch").pop()

def work():
    op = session.emitter("torch").prepare("aten::add(f32[4], f32[4]) -> f32[4]", "forward")
    session.emitter("torch").push(op)
    session.emitter("torch").pop()
"""


def run(body: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(root=str(ROOT)) + body, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


LEAVING = {
    "a worker of multiprocessing": """
one = multiprocessing.get_context("fork").Process(target=use_the_gpu, args=(7,))
one.start()
one.join()
""",
    "a process that leaves by os._exit": """
if not os.fork():
    use_the_gpu(7)
    os._exit(0)
os.wait()
""",
    "a process that ends as programs do": """
if not os.fork():
    use_the_gpu(7)
    sys.exit(0)
os.wait()
""",
}


@pytest.mark.parametrize("how", LEAVING)
def test_kernels_of_a_forked_process_are_recorded(tmp_path: Path, how: str) -> None:
    body = f"child._finish_at_quick_exits()\nsession.start(Run(folder))\nwork()\n{LEAVING[how]}"
    run(body + "session.stop()\n", tmp_path)
    profile = Profile(collect(tmp_path))
    assert len(profile.trace["processes"]) == 2
    (process,) = profile.kernels()["process"].unique().to_list()
    assert len(profile.kernels()) == 7
    assert profile.kernels()["reason"].is_null().all()
    ops = profile.ops()
    assert ops.filter(pl.col("process") == process)["kernels"].to_list() == [1] * 7
    assert ops.filter(pl.col("process") != process)["device_time"].to_list() == [0]


def test_parent_and_child_have_each_their_own(tmp_path: Path) -> None:
    run(
        "session.start(Run(folder))\n"
        + LEAVING["a worker of multiprocessing"]
        + "use_the_gpu(3)\nsession.stop()\n",
        tmp_path,
    )
    profile = Profile(collect(tmp_path))
    counts = profile.kernels().group_by("process").len().sort("len")["len"].to_list()
    assert counts == [3, 7]
    assert profile.trace["windows"].is_empty()


def test_a_forked_process_without_a_profiler_says_that_its_kernels_are_missing(
    tmp_path: Path,
) -> None:
    body = """
import opscope
gpu.begun = True
target = folder / "a.opscope"
with opscope.capture(target, backend="kineto"):
    use_the_gpu(3)
    one = multiprocessing.get_context("fork").Process(target=use_the_gpu, args=(7,))
    one.start()
    one.join()
"""
    run(body, tmp_path)
    profile = load(tmp_path / "a.opscope")
    assert len(profile.kernels()) == 3
    notes = " ".join(profile.notes()["what"])
    assert "kernels of a forked process are not captured" in notes
    ops = profile.ops().sort("device_time", nulls_last=True)
    assert ops["device_time"].null_count() == 7  # not 0, and not the CPU's
    assert ops["reason"].drop_nulls().unique().to_list() == ["kernels not captured in this window"]


def test_a_forked_process_that_leaves_the_block_leaves_the_profile_to_its_parent(
    tmp_path: Path,
) -> None:
    body = """
import opscope
gpu.begun = True
with opscope.capture(folder / "a.opscope", backend="kineto"):
    use_the_gpu(3)
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    work()
if not pid:
    sys.exit(0)
"""
    run(body, tmp_path)
    profile = load(tmp_path / "a.opscope")
    assert len(profile.kernels()) == 3
    assert len(profile.ops()) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["a.opscope"]
