"""Losses and weights of real training are bit for bit those without opscope, in a process of their own each.

MindSpore searches for the number of threads of each kernel while it runs, so that in one process the same
training can differ from one time to the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import contextlib, hashlib, json, sys
import opscope
opscope.init()
import mindspore as ms
from tests.on_mindspore import models
kind, way, optimizer, target = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE if way == "graph" else ms.PYNATIVE_MODE)
if not target:
    opscope.shutdown()
with opscope.capture(target, backend="recorder") if target else contextlib.nullcontext():
    train = models.trained if way == "pynative" else models.trained_by_cell
    losses, weights = train(getattr(models, kind), 3, optimizer)
print(json.dumps([losses, {name: hashlib.md5(one).hexdigest() for name, one in weights.items()}]))
"""
CASES = [
    ("LeNet", "pynative", "SGD"),
    ("ResNet", "pynative", "Adam"),
    ("Transformer", "pynative", "AdamW"),
    ("LeNet", "cell", "Momentum"),
    ("LeNet", "graph", "Momentum"),
]


def results(kind, way, optimizer, target):
    environ = {**os.environ, "GLOG_v": "3", "OMP_NUM_THREADS": "1"}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, way, optimizer, target],
        capture_output=True, text=True, env=environ, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("kind", "way", "optimizer"), CASES)
def test_losses_and_weights_are_those_without_opscope(tmp_path, kind, way, optimizer):
    losses, weights = results(kind, way, optimizer, str(tmp_path / "run.opscope"))
    assert losses[0] != losses[-1]  # it trains
    assert [losses, weights] == results(kind, way, optimizer, "")
