"""Installed and undone without a trace; our errors never reach the program."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

ms = pytest.importorskip("mindspore")
import numpy as np  # noqa: E402
from mindspore import Tensor, context, nn, ops  # noqa: E402
from mindspore.experimental import optim  # noqa: E402
from mindspore.ops.auto_generate import gen_ops_prim  # noqa: E402

import opscope  # noqa: E402
from opscope import adapters  # noqa: E402
from opscope.adapters.mindspore import dispatch  # noqa: E402
from opscope.adapters.mindspore.api import api  # noqa: E402
from opscope.core.capture import session  # noqa: E402
from tests.on_mindspore.models import LeNet, trained  # noqa: E402

ROOT = Path(__file__).parents[2]
PATHS = os.environ.get("PYTHONPATH", "")


def depth():
    """The dispatch modes on this thread."""
    return dispatch.stack().depth() if dispatch.Mode is not None else 0


def patched():
    """Every attribute that is exchanged."""
    executor, module = api()._PyNativeExecutor, api()
    return {
        "cell": nn.Cell.__dict__["__call__"],
        "optimizers": [kind.__dict__.get("__call__") for kind in (nn.Optimizer, optim.Optimizer)],
        "executor": [
            executor.__dict__[name]
            for name in ("new_graph", "end_graph", "grad", "clear_res", "set_is_run_recompute")
        ],
        "legacy": executor.__dict__["run_op_async"],
        "graphs": [
            module._CellGraphExecutor.__dict__["run"],
            module._JitExecutor.__dict__["__call__"],
        ],
        "compilers": [
            getattr(module, name).__dict__["compile"] for name in ("GraphExecutor_", "JitExecutor_")
            if hasattr(module, name)
        ],
        "pyboost": {
            name: one for name, one in vars(gen_ops_prim).items() if name.startswith("pyboost_")
        },
        "methods": dict(vars(Tensor)),
        "threads": threading.Thread.__dict__["_bootstrap_inner"],
        "modes": depth(),
        "synchronous": context.get_context("pynative_synchronize"),
        "watchers": list(session._watchers),
        "subscribers": list(session._subscribers),
    }  # fmt: skip


def test_shutdown_restores_every_attribute(tmp_path):
    before = patched()
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        during = patched()
        assert during["cell"] is not before["cell"]
        assert during["executor"] != before["executor"]
        assert during["synchronous"]
        if dispatch.Mode is not None:
            assert during["modes"] == 1
            assert during["threads"] is not before["threads"]
        else:
            assert during["pyboost"] != before["pyboost"]
            assert during["methods"] != before["methods"]
        trained(LeNet, 1)
    assert nn.Cell.__dict__["__call__"] is before["cell"]  # without a listener, too
    assert depth() == 0
    opscope.shutdown()
    assert patched() == before
    with opscope.capture(tmp_path / "again.opscope", backend="recorder"):
        ops.relu(Tensor(np.ones(3, np.float32)))
    opscope.shutdown()
    assert len(opscope.load(tmp_path / "again.opscope").ops()) == 1
    assert patched() == before


def test_init_without_a_capture_hooks_no_op(tmp_path):
    before = patched()
    opscope.init()
    now = patched()
    same = {name for name in before if name not in ("optimizers", "graphs", "watchers")}
    assert {name: now[name] for name in same} == {name: before[name] for name in same}


def test_an_option_that_the_program_has_set_stays(tmp_path):
    context.set_context(pynative_synchronize=True)
    try:
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            ops.relu(Tensor(np.ones(3, np.float32)))
        opscope.shutdown()
        assert context.get_context("pynative_synchronize")
    finally:
        context.set_context(pynative_synchronize=False)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("opscope.adapters.mindspore.ops.Ops._enter", "an op could not be described"),
        ("opscope.adapters.mindspore.ops.Ops._complete", "an op's result"),
        ("opscope.adapters.mindspore.layers.Layers._name", "a layer could not be named"),
        ("opscope.adapters.mindspore.ops.Ops.begin_gradient", "a gradient could not"),
        ("opscope.adapters.mindspore.phases.Phases._begin", "a phase could not"),
    ],
)
def test_an_error_of_ours_is_logged_once_and_never_reaches_the_program(
    tmp_path, monkeypatch, caplog, where, message
):
    expected = trained(LeNet, 2)
    before = patched()

    def broken(*_args, **_kwargs):
        raise RuntimeError("ours")

    monkeypatch.setattr(where, broken)
    caplog.set_level(logging.ERROR, "opscope.adapters.mindspore")
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        losses, weights = trained(LeNet, 2)
        adapter = adapters._installed["mindspore"]
        assert adapter.broken
        assert nn.Cell.__dict__["__call__"] is before["cell"]
        assert depth() == 0
    assert losses == pytest.approx(expected[0], rel=1e-5)
    assert weights.keys() == expected[1].keys()
    logged = [one for one in caplog.records if "no longer observed" in one.getMessage()]
    assert len(logged) == 1
    assert message in logged[0].getMessage()
    monkeypatch.undo()
    opscope.shutdown()
    assert patched() == before


def test_an_op_that_raises_raises_its_own_error_and_closes_its_range(recorded):
    x = Tensor(np.ones((3, 4), np.float32))

    def program():
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            ops.matmul(x, x)
        ops.relu(x)

    profile = recorded(program)
    ran = profile.ops()
    assert ran.filter(pl.col("op").cast(pl.String).str.to_lowercase() == "relu").height == 1
    assert ran["parent_id"].null_count() == len(ran)


def test_a_function_that_raises_while_it_is_differentiated_leaves_later_steps_linked(tmp_path):
    """In a process of its own: the error leaves MindSpore in a state in which LayerNorm's gradient fails."""
    program = f"""
import opscope, mindspore as ms, numpy as np
from mindspore import ops
ms.set_context(mode=ms.PYNATIVE_MODE)
x = ms.Tensor(np.ones((2, 3), np.float32))
def fails(x):
    ops.relu(x)
    raise KeyError("the program's")
with opscope.capture({str(tmp_path / "run.opscope")!r}, backend="recorder"):
    try:
        ms.grad(fails)(x)
    except KeyError:
        pass
    ms.grad(lambda x: ops.tanh(x * 2.0).sum())(x)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), PATHS])}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, timeout=300
    )
    assert done.returncode == 0, done.stderr
    ops_ = opscope.load(tmp_path / "run.opscope").ops()
    backward = ops_.filter(pl.col("direction").cast(pl.String) == "backward")
    assert backward["forward_op_id"].drop_nulls().len() >= 2
