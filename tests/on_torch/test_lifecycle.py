"""Installed once, undone without a trace, out of the way when it fails; steps and phases."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch.nn.modules import module as modules  # noqa: E402
from torch.optim import optimizer as optimizers  # noqa: E402
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack  # noqa: E402
from torch.utils.data import dataloader  # noqa: E402

import opscope  # noqa: E402
from opscope import adapters  # noqa: E402
from opscope.core.capture import session  # noqa: E402

F = torch.nn.functional
nn = torch.nn
ROOT = Path(__file__).resolve().parents[2]


def hooks():
    """Everything global that an observer of PyTorch could have left something in."""
    return {
        "modes": list(_get_current_dispatch_mode_stack()),
        **{
            name: dict(value)
            for name, value in vars(modules).items()
            if name.startswith("_global") and isinstance(value, dict)
        },
        "optimizer before": dict(optimizers._global_optimizer_pre_hooks),
        "optimizer after": dict(optimizers._global_optimizer_post_hooks),
        "backward": (
            torch.autograd.graph._engine_run_backward,
            torch.autograd._engine_run_backward,
        ),
        "optimizers made": optimizers.Optimizer.__init__,
        "fetch": dataloader._BaseDataLoaderIter.__next__,
        "thread": threading.Thread._bootstrap_inner,
        "call": (nn.Module.__call__, nn.Module._call_impl),
        "module attributes": set(vars(nn.Linear(1, 1))),
        "watchers": list(session._watchers),
        "subscribers": list(session._subscribers),
    }


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def phases(emitter):
    return [one.text for one in emitter.ranges if one.category == "phase"]


@pytest.fixture
def steps(monkeypatch):
    """The numbers of the steps that the session has begun, whoever told it to."""
    told = []

    def heard(begin):
        def begins(number=None):
            begun = begin(number)
            if told[-1:] != [begun]:  # one of them may call the other
                told.append(begun)
            return begun

        return begins

    for name in ("step", "begin_step"):
        monkeypatch.setattr(session, name, heard(getattr(session, name)))
    return told


def test_nothing_is_left_behind(watched):
    before = hooks()
    emitter = watched.install()
    assert hooks() != before
    model = nn.Linear(3, 2)
    step(model, sgd(model))
    watched.adapter.uninstall()
    assert hooks() == before
    count = len(emitter.ranges)
    step(model, sgd(model))
    assert len(emitter.ranges) == count
    assert emitter.stack() == []
    watched.adapter.uninstall()


def test_shutdown_undoes_init_and_wrap():
    before = hooks()

    class Owner:
        @staticmethod
        def one(x):
            return x

    original = vars(Owner)["one"]
    opscope.init()
    opscope.init(["torch"])
    # Keras is there too where another test has imported it
    assert adapters.installed().count("torch") == 1
    assert len(optimizers._global_optimizer_pre_hooks) == len(before["optimizer before"]) + 1
    opscope.wrap(Owner, "one")
    opscope.wrap(Owner, "one")
    assert vars(Owner)["one"] is not original
    assert Owner.one(3) == 3
    opscope.shutdown()
    opscope.shutdown()
    assert hooks() == before
    assert vars(Owner)["one"] is original


def test_while_nothing_listens_only_the_optimizer_is_hooked(watched):
    before = hooks()
    watched.emitter.active = False
    emitter = watched.install()
    idle = hooks()
    assert {name for name in idle if idle[name] != before[name]} == {
        "optimizer before",
        "optimizer after",
        "optimizers made",
    }
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    step(model, optimizer)
    assert emitter.ranges == []
    emitter.active = True
    watched.adapter.listen()
    step(model, optimizer)
    assert emitter.named("aten::addmm")
    emitter.active = False
    watched.adapter.listen()
    assert hooks() == idle


def test_a_session_that_begins_and_ends_is_heard(tmp_path):
    from opscope.backends.recorder import RecorderCapture

    before = hooks()
    opscope.init(["torch"])
    idle = hooks()
    session.start(RecorderCapture(tmp_path / "run"))
    try:
        assert hooks() != idle
    finally:
        session.stop()
    assert hooks() == idle
    opscope.shutdown()
    assert hooks() == before


@pytest.mark.parametrize("where", ["describe", "with_result"])
def test_our_fault_is_logged_once_and_never_raised(watched, monkeypatch, caplog, where):
    from opscope.adapters.torch import dispatch

    before = hooks()

    def broken(*args, **kwargs):
        raise ZeroDivisionError("a fault of ours")

    watched.install()
    monkeypatch.setattr(dispatch, where, broken)
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    with caplog.at_level(logging.ERROR, "opscope"):
        for _ in range(3):
            step(model, optimizer)
    assert model.weight.grad is not None
    assert len(errors(caplog)) == 1
    assert "ZeroDivisionError" in caplog.text
    assert watched.broken
    left = hooks()
    assert {name for name in left if left[name] != before[name]} <= {"modes"}
    watched.adapter.uninstall()
    assert hooks() == before
    assert watched.emitter.stack() == []


def errors(caplog):
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_fault_in_a_module_hook(watched, monkeypatch, caplog):
    from opscope.adapters.torch.modules import Layers

    watched.install()
    monkeypatch.setattr(Layers, "_name", lambda *_: 1 / 0)
    assert nn.Linear(3, 2)(torch.ones(1, 3)).shape == (1, 2)
    assert nn.Linear(3, 2)(torch.ones(1, 3)).shape == (1, 2)
    assert watched.broken
    assert len(errors(caplog)) == 1


def test_an_error_of_the_users_passes_and_ranges_close(emitter):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert emitter.stack() == []
    (op,) = emitter.named("aten::mm")
    assert op.closed
    assert op.call.outputs is None


def test_no_tensor_is_kept_alive(emitter):
    import weakref

    x = torch.ones(3, requires_grad=True)
    y = (x * 2).exp()
    y.sum().backward()
    gone = [weakref.ref(x), weakref.ref(y)]
    del x, y
    assert [one() for one in gone] == [None, None]


def test_phases_follow_the_program(emitter):
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    for _ in range(2):
        step(model, optimizer)
    assert phases(emitter) == ["forward", "backward", "optimizer"] * 2
    (sum_, _) = emitter.named("aten::sum")
    assert sum_.phase == "forward"  # the loss too, though outside the model
    with torch.no_grad():
        model(torch.ones(2, 3))
        torch.ones(1)
    assert emitter.ops[-1].phase is None
    assert all(one.closed for one in emitter.ranges)


def test_each_optimizer_step_is_a_step(emitter, steps):
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    for _ in range(3):
        step(model, optimizer)
    assert steps == [0, 1, 2, 3]


def test_gradient_accumulation_is_one_step(emitter, steps):
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    for _ in range(2):
        for _ in range(4):
            model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert steps == [0, 1, 2]
    assert phases(emitter) == [*["forward", "backward"] * 4, "optimizer"] * 2


@pytest.mark.parametrize("listening", [True, False])
def test_a_step_that_the_gradient_scaler_leaves_out_is_a_step_too(watched, steps, listening):
    emitter = watched.install()
    emitter.active = listening
    watched.adapter.listen()
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    stepped = []
    optimizer.register_step_post_hook(lambda *_: stepped.append(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for factor in (1.0, float("inf"), float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(factor * model(torch.ones(2, 3)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert len(stepped) == 2
    assert steps[-1] == 4 if listening else len(steps) == 4
    assert not watched.broken


def test_a_gradient_scaler_that_is_switched_off_counts_nothing_twice(emitter, steps):
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(3):
        scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        scaler.step(optimizer)
    assert steps == [0, 1, 2, 3]


def test_the_gradient_scaler_is_put_back(watched):
    before = torch.amp.GradScaler.step
    watched.install()
    assert torch.amp.GradScaler.step is not before
    watched.adapter.uninstall()
    assert torch.amp.GradScaler.step is before


@pytest.mark.parametrize("other_alive", [False, True])
def test_two_optimizers_make_one_step(emitter, steps, other_alive):
    """A GAN: whether or not it is known beforehand that there are two, rounds become steps."""
    critic, generator = nn.Linear(3, 1), nn.Linear(3, 3)
    first = sgd(critic)
    second = sgd(generator) if other_alive else None
    after = []
    for _ in range(4):
        critic(generator(torch.ones(2, 3)).detach()).sum().backward()
        first.step()
        after.append(len(steps) - 1)
        second = second or sgd(generator)
        critic(generator(torch.ones(2, 3))).sum().backward()
        second.step()
        after.append(len(steps) - 1)
    # steps ended after each optimizer's step: from the second round on only the last one ends one
    assert after == ([0, 1, 1, 2, 2, 3, 3, 4] if other_alive else [1, 1, 1, 2, 2, 3, 3, 4])


def test_the_first_step_looks_at_no_other_object_of_the_program():
    """That took tens of ms in the middle of step 0; in a process of its own, with no old models."""
    program = """
import gc, torch, opscope
opscope.init(frameworks="torch")
models = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
def refuse(*args):
    print("looked at all objects")
gc.get_objects = gc.collect = refuse
for model, optimizer in zip(models, optimizers):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print("step", opscope.core.capture.session.current_step())
"""
    done = run(program)
    assert (done.stdout, done.stderr) == ("step 1\n", "")


def test_optimizers_made_before_are_counted(steps):
    model = nn.Linear(3, 2)
    before = [sgd(model), sgd(model)]
    opscope.init(frameworks="torch")
    try:
        for _ in range(2):
            for optimizer in before:
                step(model, optimizer)
    finally:
        opscope.shutdown()
    assert steps == [1, 2]  # what the first round ended was step 0


def test_user_steps_win(emitter, steps):
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    for number in range(3):
        assert opscope.step(10 + number) == 10 + number
        step(model, optimizer)
    assert steps == [10, 11, 12]


def test_an_optimizer_that_raises_does_not_stay_open(emitter):
    model = nn.Linear(3, 2)
    optimizer = sgd(model)

    def closure():
        raise KeyError("the user's")

    with pytest.raises(KeyError):
        optimizer.step(closure)
    step(model, optimizer)
    assert emitter.named("aten::addmm")[-1].category == "forward"
    assert all(one.closed for one in emitter.ranges)


def test_a_thread_that_a_stopped_capture_could_not_reach_is_left_at_its_next_step(watched):
    emitter = watched.install()
    stacks, turn = [], threading.Barrier(2, timeout=60)

    def trains():
        model = nn.Linear(3, 2)
        optimizer = sgd(model)
        for _ in range(2):
            step(model, optimizer)
            stacks.append(len(_get_current_dispatch_mode_stack()))
            turn.wait()
            turn.wait()

    thread = threading.Thread(target=trains)
    thread.start()
    turn.wait()
    emitter.active = False
    watched.adapter.listen()
    turn.wait()
    turn.wait()
    turn.wait()
    thread.join()
    assert stacks == [1, 0]


def test_a_fault_in_counting_steps_never_reaches_the_program(watched, monkeypatch, caplog):
    """Nothing listens; the hooks are there to count."""
    before = hooks()
    watched.emitter.active = False
    watched.install()

    def fails():
        raise KeyError("ours")

    monkeypatch.setattr(session, "next_step", fails)
    model = nn.Linear(3, 2)
    optimizer = sgd(model)
    for _ in range(2):
        step(model, optimizer)
    assert watched.broken
    assert hooks() == before
    assert [one.message for one in caplog.records] == [
        "opscope: a step could not be counted; PyTorch is no longer observed"
    ]


def test_closure_runs_forward_inside_the_optimizer(emitter):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert {op.category for op in emitter.named("aten::addmm")} == {"forward"}
    assert {op.category for op in emitter.named("aten::mm")} == {"backward"}
    assert all(one.closed for one in emitter.ranges)


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )


def test_init_before_import_is_the_same_as_after():
    code = """
import sys
import opscope
if {early}: opscope.init()
assert "torch" not in sys.modules and "polars" not in sys.modules
import torch
if not {early}: opscope.init()
from opscope import adapters
from torch.optim import optimizer
print(adapters.installed(), len(optimizer._global_optimizer_pre_hooks))
"""
    results = [run(code.format(early=early)) for early in (True, False)]
    assert results[0].stdout == results[1].stdout == "('torch',) 1\n", results
    assert results[0].stderr == results[1].stderr == ""


def test_unsupported_version_is_logged_or_raised():
    code = """
import logging, sys
logging.basicConfig(format="%(message)s")
import opscope, torch
from opscope.adapters.torch import TorchAdapter
TorchAdapter.requires = ">=99"
opscope.init()
from opscope import adapters
assert adapters.installed() == ()
try:
    opscope.init("torch")
except adapters.AdapterError as error:
    print(error)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "is not supported (needs >=99)" in done.stdout
    assert "torch is not observed" in done.stderr


def test_unknown_framework_is_refused():
    with pytest.raises(adapters.AdapterError, match="no adapter for 'abacus'"):
        opscope.init("abacus")


OF_NO_USE_ANY_MORE = """
import gc, os, weakref
import torch, opscope
from opscope import adapters
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session
gone = []
for number in range(3):
    opscope.init("torch")
    session.start(RecorderCapture(f"{folder}/{{number}}"))
    torch.nn.Sequential(torch.nn.Linear(3, 3))(torch.ones(3)).sum().backward()
    session.stop()
    gone.append(weakref.ref(adapters._installed["torch"]))
    opscope.shutdown()
gc.collect()
print([one() is None for one in gone])
"""


@pytest.mark.parametrize("mode", ["dispatch", "native"])
def test_an_adapter_that_is_shut_down_is_gone(mode, tmp_path, monkeypatch):
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    done = run(OF_NO_USE_ANY_MORE.format(folder=tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[True, True, True]\n"


GROWING = """
import os
import torch, opscope
from opscope.backends.recorder import RecorderCapture
from opscope.core.capture import session

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

opscope.init("torch")
session.start(RecorderCapture(r"{folder}"))
torch.ones(3) * 2
before = resident()
for size in range(64, 64 * 4001, 64):
    x = torch.ones(size)
    y = x * 2
del x, y
print(resident() - before)
session.stop()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks there")
@pytest.mark.parametrize("mode", ["dispatch", "native"])
def test_what_is_kept_of_calls_does_not_keep_the_tensors_between_it(mode, tmp_path, monkeypatch):
    """With texts in the heap among them, tensors of 4 GB in all were still there after they were freed."""
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", mode)
    done = run(GROWING.format(folder=tmp_path))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200  # MiB; 10 of them are of use
