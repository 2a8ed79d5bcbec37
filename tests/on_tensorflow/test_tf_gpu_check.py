"""gpu_check.sh's questions about TensorFlow, as far as they go without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gpu_results_tensorflow.py"


def script():
    spec = importlib.util.spec_from_file_location("gpu_results_tensorflow", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_recording_and_the_profilers_file_pass_and_what_needs_a_gpu_is_skipped(tmp_path):
    profile, results = tmp_path / "loop.opscope", tmp_path / "loop.checks.json"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    for command in (
        ["-m", "opscope", "run", "--no-report", "-o", profile, "--", sys.executable,
         ROOT / "examples" / "tensorflow_loop.py"],
        [SCRIPT, "loop", tmp_path],
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    found = list(json.loads(results.read_text())["checks"].values())
    assert (found.count(True), found.count(None), found.count(False)) == (7, 6, 0)


def test_a_recording_of_something_else_fails(recorded):
    import tensorflow as tf

    profile = recorded(lambda: tf.matmul(tf.ones((2, 2)), tf.ones((2, 2))))
    checks = script().recorded(profile, gpu=True)
    passed = [what for what, holds in checks.items() if holds]
    assert passed == ["at least 99 % of op time has shapes"]
