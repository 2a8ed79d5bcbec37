"""The scripts refuse clearly where they cannot work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(name: str, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / name), *map(str, args)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_gpu_check_refuses_without_cuda_and_leaves_nothing(tmp_path):
    cuda = pytest.importorskip("torch.cuda")
    if cuda.is_available():
        pytest.skip("there is a CUDA device here: run scripts/gpu_check.sh itself")
    done = script("gpu_check.sh", tmp_path / "out", PYTHON=sys.executable)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpu_check: no CUDA device")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_gpu_check_refuses_without_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('none here')")
    done = script("gpu_check.sh", tmp_path / "out", PYTHON=sys.executable, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gpu_check: {sys.executable} has no torch\n"
    assert not (tmp_path / "out").exists()


def test_a_python_that_is_too_old_is_refused(tmp_path):
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for name in ("python3.13", "python3.12", "python3.11", "python3.10", "python3", "python"):
        (tmp_path / name).symlink_to(old)
    done = script(
        "test.sh",
        VENV=str(tmp_path / "venv"),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        PYTHON=str(old),
    )
    assert done.returncode != 0
    assert "needs Python 3.10 or later" in done.stderr
    assert not (tmp_path / "venv").exists()
