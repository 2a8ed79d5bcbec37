"""PyTorch's own lazy initialisation of CUDA, over a driver that is not there, under ``opscope run``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pytest

import opscope

pytest.importorskip("torch")

ROOT = Path(opscope.__file__).resolve().parents[1]
STAND_IN = Path(__file__).resolve().parents[1] / "lazy_cuda"
#: What a deadlock is told by; a run takes some seconds.
LIMIT_S = 120


@pytest.fixture
def on_gpus(tmp_path):
    """Run a program's text, by ``opscope run`` with options if there are any; its output and report."""

    def run(text, *options, **driver):
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        path = os.pathsep.join([str(STAND_IN), str(ROOT)])
        command = [sys.executable, "program.py"]
        if options:
            run = [sys.executable, "-m", "opscope", "run", "--no-report", "-o", "out"]
            command = [*run, *options, "--", *command]
        settings = {"log": str(tmp_path / "driver"), **driver}
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "OMP_NUM_THREADS": "1",
                "CUDA_STAND_IN": json.dumps(settings),
            },
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        reports = [json.loads(one.read_text()) for one in tmp_path.glob("driver.*")]
        done.driver = max(reports, key=lambda one: len(one["calls"]))
        done.trace = opscope.load(tmp_path / "out.opscope").trace if options else None
        return done

    return run


PROGRAM = """
    import torch
    from cuda_driver import driver
    torch.ones(3)
    torch.cuda.set_device(1)
    kept = driver.allocate(1000)
    gone = driver.allocate(500)
    driver.release(gone)
    torch.ones(4)
    print(torch.cuda.is_initialized(), torch.cuda.current_device())
"""


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("options", [["--memory"], []])
def test_a_run_ends_through_the_real_lazy_initialisation(on_gpus, options, reentrant):
    """Its lock, plain up to PyTorch 2.14, is held while what begins the kernels' recording runs."""
    done = on_gpus(PROGRAM, *options, "--backend", "kineto", reentrant=reentrant)
    assert done.stdout.split() == ["True", "1"]
    assert "Error" not in done.stderr
    assert "not recorded" not in done.stderr
    assert "cudaDeviceSynchronize" in done.driver["calls"]  # the profiler was there to be ended
    texts = done.trace["ranges"]["text"].cast(pl.String)
    assert {"aten::ones() -> f32[3]", "aten::ones() -> f32[4]"} <= {
        text.split(" on ")[0].split(" {")[0].split(" @")[0] for text in texts
    }
    if options:
        gpu = done.trace["allocations"].filter(pl.col("device") == 1)
        assert gpu["bytes"].to_list() == [1000, 500, -500]
        assert gpu["total"].to_list() == [1000, 1500, 1000]


@pytest.mark.parametrize("options", [["--memory", "--backend", "kineto"], ["--memory"]])
def test_nothing_of_ours_makes_a_context_on_any_gpu(on_gpus, options):
    """A context is hundreds of MB, and what runs as CUDA begins has device 0 in every rank."""
    done = on_gpus(PROGRAM, *options)
    assert [made for made in done.driver["contexts"] if made[2] and made[0] != 1] == []
    assert done.driver["contexts"][0] == [1, "cudaSetDevice", False]


def test_a_history_of_the_programs_own_is_as_without_opscope(on_gpus):
    program = """
        import torch
        from cuda_driver import driver
        history = torch.cuda.memory._record_memory_history
        history(max_entries=100)  # the first use of CUDA
        driver.allocate(10)
        print([e["size"] for e in torch.cuda.memory._snapshot()["device_traces"][0]])
        history(None)
        driver.allocate(20)
        print([e["size"] for e in torch.cuda.memory._snapshot()["device_traces"][0]])
    """
    plain = on_gpus(program)
    done = on_gpus(program, "--memory", "--backend", "kineto")
    assert done.stdout == plain.stdout == "[512, 10]\n[]\n"
    gpu = done.trace["allocations"].filter(pl.col("device") == 0)
    assert gpu.select("bytes", "total").rows() == [(20, 30)]
    assert any("keeps its own history" in what for what in done.trace["notes"]["what"])
