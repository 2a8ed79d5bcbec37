"""The example in both modes, alone and under ``opscope run``; the row in the table of frameworks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mindspore")

import mindspore

import opscope
from tests.frameworks import assert_as_written

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "mindspore_lenet.py")


def run(command, folder):
    environ = {**os.environ, "GLOG_v": "3"}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environ, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_prints_a_report_of_each_mode(tmp_path):
    out = run([EXAMPLE, str(tmp_path)], tmp_path)
    assert "LeNet in PyNative mode" in out
    assert "LeNet in graph mode" in out
    assert out.count("Where the time went: ") == 2
    for name in ("pynative", "graph"):
        profile = opscope.load(tmp_path / f"{name}.opscope")
        assert profile.summary()["steps"].item() == 4
        assert "Conv2DBackpropFilter" in profile.ops()["op"].to_list()


def test_opscope_run_records_the_example(tmp_path):
    target = tmp_path / "run.opscope"
    run(["-m", "opscope", "run", "-o", str(target), "--", sys.executable, EXAMPLE], tmp_path)
    profile = opscope.load(target)
    assert profile.summary()["steps"].item() >= 15
    assert "LeNet.conv1" in profile.ops()["layer"].to_list()


@pytest.mark.skipif(
    not mindspore.__version__.startswith(("2.9", "2.10")),
    reason="versions before 2.9 tell gradients whole",
)
def test_the_columns_are_those_of_the_page(tmp_path):
    assert_as_written("MindSpore, PyNative", tmp_path)
