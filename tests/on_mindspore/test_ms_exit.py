"""A program ends as it does without opscope: MindSpore takes itself down before a recording's end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import opscope

PROGRAM = """
import sys
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

ms.set_context(mode=ms.PYNATIVE_MODE if sys.argv[1] == "pynative" else ms.GRAPH_MODE)
net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
loss = nn.WithLossCell(net, nn.MSELoss())
step = nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 0.1))
for _ in range(3):
    step(Tensor(np.ones((5, 4), np.float32)), Tensor(np.zeros((5, 2), np.float32)))
print("trained")
"""


@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_a_recording_that_began_before_mindspore_was_imported_ends_in_peace(tmp_path, mode):
    """Asked for its graphs after its own exit, MindSpore makes an executor that aborts the process."""
    script, target = tmp_path / "train.py", tmp_path / "run.opscope"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "opscope", "run", "-o", str(target), "--"]
    ran = subprocess.run(
        [*command, sys.executable, str(script), mode],
        capture_output=True, text=True, timeout=300, env={**os.environ, "GLOG_v": "3"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("trained")
    assert "Fatal" not in ran.stderr
    products = opscope.load(target).ops().filter(op_type="gemm")
    assert len(products) == 3 * 5  # two forward, three of their gradients: none of the input's
    assert products["flops"].null_count() == 0


#: A thread that still takes the dispatch mode off when the program ends, which takes long here.
SLOW_END = """
import sys, threading, time
import opscope
from opscope.adapters.mindspore import dispatch
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session

class Slow:
    def __init__(self, modes):
        self.depth, self._pop = modes.depth, modes.pop

    def pop(self):
        ends.set()
        time.sleep(0.3)
        self._pop()
        print("taken off", flush=True)

opscope.init("mindspore")
session.start(RecorderCapture(sys.argv[1]))
main, stack, ends = threading.get_ident(), dispatch.stack, threading.Event()
dispatch.stack = lambda: stack() if threading.get_ident() == main else Slow(stack())
threading.Thread(target=int, daemon=True).start()
assert ends.wait(60)
session.stop()
"""


def test_the_exit_waits_for_a_thread_that_takes_the_mode_off(tmp_path):
    """Python's end would stop the thread inside MindSpore, which aborts the process then (4 of 120 runs)."""
    ran = subprocess.run(
        [sys.executable, "-c", SLOW_END, str(tmp_path / "recording")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "taken off\n"
