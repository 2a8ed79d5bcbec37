"""PyTorch's ops, memory and steps in a ring; and a training that somebody attaches to goes on bit by bit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.capture import attach_place
from tests.cli.test_run import cli, environment

TRAINING = """
    import hashlib, os, sys, time
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for number in range({steps}):
        loss = ((model(torch.randn(16, 32)) - torch.randn(16, 8)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        {each}
    weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    print(hashlib.sha256(weights).hexdigest(), flush=True)
"""


def program(folder: Path, steps: int, each: str) -> None:
    (folder / "train.py").write_text(textwrap.dedent(TRAINING).format(steps=steps, each=each))


def test_a_ring_has_the_ops_memory_and_samples_of_the_last_steps(tmp_path: Path) -> None:
    program(tmp_path, 300, "time.sleep(4 if number == 200 else 0.01)")
    done = cli(
        tmp_path, "run", "--last", "60 steps", "--slow", "80", "--memory", "--no-report",
        "--", "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("train.opscope", "train-slow-1.opscope"):
        trace = opscope.load(tmp_path / name).trace
        notes = trace["notes"]["what"].cast(str).to_list()
        assert not [one for one in notes if "lost" in one], notes
        ranges = trace["ranges"]
        steps = ranges.filter(pl.col("category") == "step")
        assert steps.height >= 60
        per_step = ranges.filter(pl.col("text").cast(str).str.starts_with("aten::addmm"))
        assert per_step.height >= 2 * (steps.height - 1)
        begin = ranges["start"].min()
        assert trace["allocations"].height > 100
        assert trace["allocations"]["time"].min() >= begin - 1_000_000_000  # type: ignore[operator]
        assert trace["samples"].height
    slow = opscope.load(tmp_path / "train-slow-1.opscope").steps()
    times = slow["time"].to_list()
    place = times.index(max(times))
    assert max(times) > 3_900_000_000
    assert 1 <= place < len(times) - 2


@pytest.mark.skipif(not attach_place.SUPPORTED, reason="attach needs Linux")
def test_a_training_that_was_attached_to_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(attach_place.FOLDER, str(tmp_path / "sockets"))
    # it waits at step 100 until somebody has attached, and 200 steps after that it ends
    waits = '[time.sleep(0.05) for _ in iter(lambda: os.path.exists("go"), True)]'
    wait = f"time.sleep(0.005); {waits} if number == 100 else None"
    program(tmp_path, 400, wait)
    (tmp_path / "go").touch()
    alone = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "go").unlink()
    running = subprocess.Popen(
        [sys.executable, "-m", "opscope", "run", "--attachable", "--no-report", "--", "train.py"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 120
        while not (found := list(attach_place.places())) and time.monotonic() < until:
            time.sleep(0.1)
        client = subprocess.Popen(
            [
                *(sys.executable, "-m", "opscope", "attach", str(found[0].pid)),
                *("--steps", "10", "--no-report", "-o", "ten"),
            ],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        while client.poll() is None and time.monotonic() < until:
            if "recording" in cli(tmp_path, "attach", found[0].pid, "--status").stdout:
                break
        (tmp_path / "go").touch()
        _, said = client.communicate(timeout=120)
        assert client.returncode == 0, said
        attached, err = running.communicate(timeout=120)
    finally:
        running.kill()
    assert attached == alone, err
    profile = opscope.load(tmp_path / "ten.opscope")
    assert len(profile.steps()) == 10
    ops = profile.ops()
    assert (
        ops.filter((pl.col("op") == "aten::addmm") & (pl.col("direction") == "forward")).height
        == 20
    )
    assert ops["layer"].drop_nulls().len() > 0
