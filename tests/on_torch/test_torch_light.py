"""Light mode under PyTorch: phases of every step, no op, the same training, and slow spells in full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.light_format import PHASES
from tests.gloo import unaborted

torch = pytest.importorskip("torch")

ROOT = Path(opscope.__file__).resolve().parents[1]
TRAINING = """
    import os, sys, time
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    STEPS = int(os.environ.get("STEPS", "60"))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(STEPS * 4, 16), torch.randint(0, 4, (STEPS * 4,)))

    def between(step): pass

    def train():
        for step, (x, y) in enumerate(DataLoader(data, batch_size=4)):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            between(step)
        return float(loss.detach())
"""
TRAINS = "\nprint(train(), [float(one.double().sum()) for one in model.state_dict().values()])\n"


def program(folder: Path, body: str = TRAINS, before: str = "") -> Path:
    path = folder / "train.py"
    path.write_text(before + textwrap.dedent(TRAINING) + textwrap.dedent(body))
    return path


def environ(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def run(folder: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    def once():
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=folder,
            env=environ(**more),
            capture_output=True,
            text=True,
            check=False,
        )

    done = unaborted(once, folder)
    assert done.returncode == 0, done.stderr
    return done


def light(folder: Path, path: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    words = ("-m", "opscope", "run", "--light", *options, "-o", "out", "--", sys.executable, path)
    return run(folder, *words, **more)


def test_a_training_is_the_same_and_each_step_has_its_phases(tmp_path):
    path = program(tmp_path)
    plain, watched = run(tmp_path, path), light(tmp_path, path)
    assert watched.stdout == plain.stdout
    profile = opscope.load(tmp_path / "out.opscope")
    frame = profile.light()
    whole = frame.row(0, named=True)
    assert whole["phase"] == "step"
    # the step before the first end of one is not measured, as in other captures
    assert whole["steps"] == 59
    parts = {row["phase"]: row["total"] for row in frame[1:].to_dicts()}
    assert set(parts) == set(PHASES)
    assert sum(ns or 0 for ns in parts.values()) == whole["total"]
    assert all(parts[name] > 0 for name in ("input", "forward", "backward", "optimizer"))
    assert parts.pop("collective") is None
    assert "called none" in frame.filter(pl.col("phase") == "collective")["reason"][0]
    assert profile.trace["ranges"].is_empty()
    told = profile.diagnosis()
    assert "Diagnosis" in watched.stderr
    assert any("which op or layer" in text for text in told["text"])
    cost = profile.light_cost().row(0, named=True)
    assert cost["step_cost"] > 0
    assert cost["step_cost_error"] > 0
    assert profile.cpu_utilization()["processors"].null_count() < 2


def test_no_op_and_no_module_is_hooked(tmp_path):
    body = """
        from opscope.adapters import base
        import opscope
        calls = torch.nn.Module._call_impl
        opscope.init(light="out.opscope", spells=False)
        print(train() > 0)
        print("torch", torch.nn.Module._call_impl is calls)
        from opscope import adapters
        print("native", adapters._installed["torch"]._mode.native)
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
        print("modes", _get_current_dispatch_mode_stack())
        opscope.shutdown()
        print("left", torch.autograd.graph._engine_run_backward.__module__,
              len(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks))
    """
    done = run(tmp_path, program(tmp_path, body))
    assert done.stdout.splitlines() == [
        "True",
        "torch True",
        "native None",
        "modes []",
        "left torch.autograd.graph 0",
    ]
    assert opscope.load(tmp_path / "out.opscope").light()["steps"][0] == 59
    assert "Diagnosis" in done.stderr


SPELL = """
    def between(step):
        if 200 <= step < 215:
            time.sleep(0.06)
    train()
"""


def test_a_planted_slow_spell_is_recorded_in_full_with_its_ops(tmp_path):
    light(tmp_path, program(tmp_path, SPELL), STEPS="400")
    profile = opscope.load(tmp_path / "out.opscope")
    cost = profile.light_cost().row(0, named=True)
    assert cost["spells"] >= 1
    assert cost["spells_recorded"] >= 1
    assert cost["full_steps"] >= 5
    recorded = profile.steps().filter(pl.col("step").is_not_null())
    assert recorded["step"].is_between(200, 216).any()
    ops = set(profile.op_totals()["op"])
    assert {"aten::addmm", "aten::mm"} & ops
    spells = profile.diagnosis().filter(pl.col("finding") == "slow spells")
    assert "recorded in full" in spells["text"][0]
    kept = profile.light_steps()
    assert kept.filter("full")["step"].is_between(195, 220).any()


@pytest.mark.parametrize("how", ["option", "argument"])
def test_no_spell_is_recorded_where_the_user_said_no(tmp_path, how):
    if how == "option":
        light(tmp_path, program(tmp_path, SPELL), "--no-spells", STEPS="400")
    else:
        before = 'import opscope\nopscope.init(light="out.opscope", spells=False)\n'
        run(tmp_path, program(tmp_path, SPELL, before), STEPS="400")
    profile = opscope.load(tmp_path / "out.opscope")
    cost = profile.light_cost().row(0, named=True)
    assert cost["spells"] >= 1
    assert cost["spells_recorded"] == 0
    assert "the user said no" in cost["reason"]
    assert profile.trace["ranges"].is_empty()


def test_a_slow_loader_is_told_in_words(tmp_path):
    body = """
        fetch = TensorDataset.__getitem__
        def slowly(self, index):
            time.sleep(0.002)
            return fetch(self, index)
        TensorDataset.__getitem__ = slowly
        train()
    """
    done = light(tmp_path, program(tmp_path, body), STEPS="30")
    found = opscope.load(tmp_path / "out.opscope").diagnosis()
    assert found["finding"][0] == "input-bound"
    assert found["share"][0] > 0.5
    assert "waited" in done.stderr


def test_a_killed_training_is_read_up_to_its_last_second(tmp_path):
    body = """
        def between(step):
            print(step, flush=True)
            time.sleep(0.01)
        train()
    """
    # the first steps are slow where the machine is busy
    before = 'import opscope\nopscope.init(light="out.opscope", spells=False)\n'
    path = program(tmp_path, body, before)
    with subprocess.Popen(
        [sys.executable, path],
        cwd=tmp_path,
        env=environ(STEPS="100000"),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        begin = time.monotonic()
        for line in child.stdout:
            if int(line) == 30:
                begin = time.monotonic()
            if int(line) > 30 and time.monotonic() - begin > 2:
                break
        child.send_signal(signal.SIGKILL)
    (folder,) = tmp_path.glob(".out.opscope-*")
    frame = opscope.load(folder).light()
    assert frame["steps"][0] > 20
    assert frame["total"][1:].sum() == frame["total"][0]


def test_a_capture_of_the_programs_own_works_in_light_mode(tmp_path):
    body = """
        import opscope
        opscope.init(light="out.opscope")
        train()
        with opscope.capture("own.opscope"):
            train()
    """
    run(tmp_path, program(tmp_path, body))
    assert len(opscope.load(tmp_path / "own.opscope").op_totals())
    cost = opscope.load(tmp_path / "out.opscope").light_cost().row(0, named=True)
    assert cost["steps"] >= 58
    assert cost["full_steps"] >= 58


def test_a_forked_child_that_trains_has_steps_of_its_own(tmp_path):
    body = """
        import opscope
        opscope.init(light="out.opscope", spells=False)
        train()
        pid = os.fork()
        if not pid:
            train()
            opscope.shutdown()
            os._exit(0)
        os.waitpid(pid, 0)
    """
    run(tmp_path, program(tmp_path, body))
    frame = opscope.load(tmp_path / "out.opscope").light()
    assert sorted(frame.filter(pl.col("phase") == "step")["steps"]) == [59, 59]


RANKS = """
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    parallel = torch.nn.parallel.DistributedDataParallel(model)

    def between(step):
        if rank == 1:
            time.sleep(0.02)
        total = torch.ones(1)
        dist.all_reduce(total)

    for step in range(40):
        x, y = torch.randn(4, 16), torch.randint(0, 4, (4,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(x), y).backward()
        optimizer.step()
        between(step)
    dist.destroy_process_group()
"""


def test_a_late_rank_is_told_and_the_other_waits_in_its_collectives(tmp_path):
    path = program(tmp_path, RANKS)
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", path)
    run(tmp_path, "-m", "opscope", "run", "--light", "-o", "out", "--", sys.executable, *words)
    profile = opscope.load(tmp_path / "out.opscope")
    waits = profile.light().filter(pl.col("phase") == "collective").sort("rank")
    assert waits["total"][0] > 2 * waits["total"][1] > 0
    (late,) = profile.diagnosis().filter(pl.col("finding") == "straggler")["text"]
    assert late.startswith("rank 1 is late")


@pytest.mark.parametrize("option", [("--steps", "3:6"), ("--duration", "3"), ("--memory",)])
def test_light_mode_cannot_be_combined_with_what_records_more(tmp_path, option):
    words = ("-m", "opscope", "run", "--light", *option, "--", sys.executable, "-c", "")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    assert "--light" in done.stderr
