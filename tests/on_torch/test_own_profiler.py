"""A program's own torch.profiler beside ours: ours makes way, for two at a time would end the process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile
from opscope.backends import kineto_capture as kineto
from opscope.readers.recording.process_part import read_part
from opscope.backends.recording_folder import parts
from opscope.core.capture import session

class Cuda(kineto._TorchCuda):
    def __init__(self):
        self._torch = torch
    def probe(self):
        pass

def on_cpu():  # what a GPU's activities need is not here
    return profile(activities=[ProfilerActivity.CPU])

def ours(name):
    return kineto.KinetoCapture(sys.argv[1] + "/" + name, on_cpu, Cuda())

def windows(name):
    return [read_part(part).origin["window"] for part in parts(sys.argv[1] + "/" + name)]
"""


def run(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + body, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.parametrize("end", ["inside", "after"])
def test_the_programs_profiler_begins_and_ours_makes_way(tmp_path: Path, end: str) -> None:
    done = run(
        f"""
session.start(ours("one"))
torch.ones(3) + 1
with on_cpu() as theirs:
    torch.ones(3) + 1
    if {end!r} == "inside":
        session.stop()
names = [event.name for event in theirs.events()]
assert names.count("aten::add") == 1, names
session.stop()
(window,) = windows("one")
assert window["ended"] == "the program's own profiler began", window
session.start(ours("two"))
session.stop()
(window,) = windows("two")
assert window["ended"] is None
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_ours_does_not_begin_while_the_programs_runs(tmp_path: Path) -> None:
    done = run(
        """
with on_cpu() as theirs:
    torch.ones(3) + 1
    try:
        session.start(ours("one"))
    except session.SessionError as error:
        print(error)
    torch.ones(3) + 1
names = [event.name for event in theirs.events()]
assert names.count("aten::add") == 2, names
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the program's own profiler runs\n"


def test_a_profiler_that_fails_to_stop_is_off_all_the_same(tmp_path: Path) -> None:
    done = run(
        """
def failing():
    made = on_cpu()
    def stop_trace():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    made.stop_trace = stop_trace
    return made
session.start(kineto.KinetoCapture(sys.argv[1] + "/one", failing, Cuda()))
torch.ones(3) + 1
session.stop()
with on_cpu() as theirs:
    torch.ones(3) + 1
assert [event.name for event in theirs.events()].count("aten::add") == 1
session.start(ours("two"))
session.stop()
(window,) = windows("two")
assert window["ended"] is None
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "illegal memory access" in done.stderr


def errors(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The errors on a program's stderr, without times and process ids."""
    assert done.returncode == 0, done.stderr
    return {re.sub(r"\d+", "#", line) for line in done.stderr.splitlines() if "ERROR" in line}


def test_ours_writes_nothing_to_the_programs_stderr(tmp_path: Path) -> None:
    """Nothing but what PyTorch's profiler alone writes: without a GPU, Kineto of 2.15 has an error to tell."""
    ours = errors(run('session.start(ours("one"))\ntorch.ones(3) + 1\nsession.stop()\n', tmp_path))
    assert not ours or ours <= errors(run("with on_cpu():\n    torch.ones(3) + 1\n", tmp_path))


def test_a_profiler_of_pytorch_is_stopped_on_the_thread_that_began_it_or_not_at_all(
    tmp_path: Path,
) -> None:
    """What the keeper's thread is for."""
    done = run(
        """
import threading
one = on_cpu()
one.start()
torch.ones(3) + 1
failed = []
def stop():
    try:
        one.stop()
    except RuntimeError as error:
        failed.append(error)
thread = threading.Thread(target=stop)
thread.start()
thread.join()
assert failed or not one.events()
""",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
