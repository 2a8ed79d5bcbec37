"""Causes planted in live trainings on the CPU are named first, and a healthy training is called healthy.

Every planted time is far longer than what a step takes beside it, so that a busy machine changes no answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opscope
from tests.gloo import unaborted
from tests.planted_truths import live

pytest.importorskip("torch")
ROOT = Path(opscope.__file__).resolve().parents[1]
TRAINING = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
import opscope
torch.manual_seed(0)
torch.set_num_threads(1)
WIDTH, BATCH, STEPS = {width}, 16, 8

class Samples(Dataset):
    def __len__(self):
        return STEPS * BATCH
    def __getitem__(self, number):
        {sample}
        return torch.ones(WIDTH), 1

model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
net = {net}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (x, y) in enumerate(DataLoader(Samples(), batch_size=BATCH)):
    {prepare}
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    {after}
"""
#: A cause, what plants it, and the first finding, or those of which one is.
PLANTED = {
    "slow loader": (
        {"sample": "time.sleep(0.3) if number % BATCH == 0 else None"},
        "input-bound",
        "num_workers",
    ),
    "sleeping step": ({"after": "time.sleep(0.3)"}, "host-bound", "between the ops"),
    # what costs more depends on the machine: the adds, which one kernel could do, or Python between them
    "tiny ops": (
        {"after": "z = torch.ones(4)\n    for _ in range(20_000): z = z + 1"},
        ("host-bound", "elementwise chains"),
        "torch.compile",
    ),
    "recompiled shapes": (
        {
            "net": "torch.compile(model, dynamic=False, backend='aot_eager')",
            "prepare": "x, y = x[: BATCH - step], y[: BATCH - step]",
        },
        "compilation",
        "dynamic=True",
    ),
    # a batch of 3 GFLOP: nothing else takes as long
    "nothing": (
        {"width": "1024", "prepare": "x, y = x.repeat(100, 1), y.repeat(100)"},
        "healthy",
        None,
    ),
}
RANKS = """
import time, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.set_num_threads(1)
net = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(8):
    if dist.get_rank() == 1:
        time.sleep(0.3)
    optimizer.zero_grad()
    net(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def run(folder, program, *command):
    """Record a program; return the diagnosis of its profile and what the run printed."""
    (folder / "train.py").write_text(program)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

    def once():
        return subprocess.run(
            [sys.executable, "-m", "opscope", "run", "-o", "out", "--backend", "recorder", "--",
             sys.executable, *command, "train.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )  # fmt: skip

    done = unaborted(once, folder)
    assert done.returncode == 0, done.stderr
    return opscope.load(folder / "out.opscope"), done.stderr


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_named_first_and_a_healthy_training_is_healthy(tmp_path, cause):
    planted, finding, to_try = PLANTED[cause]
    plain = {"width": "64", "sample": "", "net": "model", "prepare": "", "after": ""}
    began, pressed = time.monotonic_ns(), live.pressure()
    profile, printed = run(tmp_path, TRAINING.format(**plain | planted))
    waited = live.pressure() - pressed
    rows = profile.diagnosis().to_dicts()
    findings = finding if isinstance(finding, tuple) else (finding,)
    starved = waited > live.STARVING * (time.monotonic_ns() - began)
    # where other tests had the processors, "starved" is the truth, and stands before a planted cause
    causes = [row for row in rows if not (starved and row["finding"] == "starved")]
    if causes or to_try is not None:
        assert causes[0]["finding"] in findings, rows
    if rows[0]["finding"] == "healthy":
        assert rows[0]["lost"] == 0
    elif to_try is not None:
        assert to_try in causes[0]["to_try"]
        assert causes[0]["lost"] > 0
    # it is what the run prints first of its report
    report = printed[printed.index("Diagnosis\n") :].splitlines()
    assert report[1].startswith(rows[0]["finding"])
    assert report[1].endswith(rows[0]["text"])


def test_a_sleeping_rank_is_named(tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed package")
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    profile, _ = run(tmp_path, RANKS, *ranks)
    first = profile.diagnosis().row(0, named=True)
    assert (first["finding"], first["rank"]) == ("straggler", 1), profile.diagnosis().to_dicts()


def test_it_is_in_json_after_the_summary(tmp_path, capsys, monkeypatch):
    from opscope.cli import start as application

    profile, _ = run(
        tmp_path, TRAINING.format(width="64", sample="", net="model", prepare="", after="")
    )
    monkeypatch.setattr("sys.argv", ["opscope", "report", str(tmp_path / "out.opscope"), "--json"])
    assert application.run() == 0
    made = json.loads(capsys.readouterr().out)
    assert list(made)[:3] == ["schema", "summary", "diagnosis"]
    assert made["diagnosis"] == profile.diagnosis().to_dicts()
