"""Phases of live trainings follow what runs: closures, loops that read values, models that nobody trains."""

from __future__ import annotations

import polars as pl
import pytest

import opscope

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

pytestmark = pytest.mark.usefixtures("binary", "fresh_steps")

STEPS = 4


@pytest.fixture(params=["native", "dispatch"])
def recorded(request, tmp_path, monkeypatch):
    """``recorded(program)``: the profile of a run, whose ops are seen in one of both ways."""
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", request.param)

    def record(program):
        opscope.init(frameworks="torch")
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            program()
        opscope.shutdown()
        return opscope.load(tmp_path / "run.opscope")

    return record


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.BatchNorm1d(32), nn.Linear(32, 4))


def batch():
    return torch.randn(8, 16), torch.randint(0, 4, (8,))


def directions(profile):
    """The directions of each op."""
    ops = profile.ops().select(pl.col("op").cast(pl.String), pl.col("direction").cast(pl.String))
    return dict(ops.group_by("op").agg(pl.col("direction").unique()).rows())


def agree(profile):
    """Ops of a direction begin in its phase: the two tables have the same sums."""
    phases, ops = profile.step_phases(), profile.ops().filter(pl.col("step").is_not_null())
    by_phase = dict(phases.group_by("phase").agg(pl.col("op_time").sum()).rows())
    by_direction = dict(ops.group_by("direction").agg(pl.col("self_time").sum()).rows())
    assert by_phase["outside"] == by_direction.get(None, 0)
    for name in ("forward", "backward", "optimizer"):
        assert by_phase[name] == by_direction.get(name, 0)
        time = phases.filter(pl.col("phase") == name)["time"].sum()
        assert time >= by_phase[name]
    return by_phase


@pytest.mark.parametrize("kind", ["LBFGS", "AdamW"])
def test_an_optimizer_s_closure_is_forward_and_backward(recorded, net, kind):
    optimizer = getattr(torch.optim, kind)(net.parameters())
    images, labels = batch()

    def closure():
        loss = functional.cross_entropy(net(images), labels)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        return loss

    def program():
        for _ in range(STEPS):
            optimizer.step(closure)

    profile = recorded(program)
    found = directions(profile)
    assert found["aten::addmm"] == ["forward"]
    assert found["aten::tanh_backward"] == ["backward"]
    assert found["aten::zero_"] == ["optimizer"]
    assert all(agree(profile)[name] > 0 for name in ("forward", "backward", "optimizer"))
    phases = profile.step_phases().group_by("step", "phase").agg(pl.col("time").sum())
    assert phases.filter(pl.col("phase") == "forward")["time"].min() > 0


@pytest.mark.parametrize("where", ["after the step", "before the backward pass", "before the loss"])
def test_a_loop_that_reads_values_is_no_forward(recorded, net, where):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def count(logits, here):
        return here == where and sum(row.argmax().item() for row in logits)

    def program():
        for _ in range(STEPS):
            images, labels = batch()
            logits = net(images)
            count(logits, "before the loss")
            loss = functional.cross_entropy(logits, labels)
            count(logits, "before the backward pass")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count(logits, "after the step")

    profile = recorded(program)
    found = directions(profile)
    assert found["aten::argmax"] == found["aten::_local_scalar_dense"] == [None]
    assert found["aten::addmm"] == found["aten::nll_loss_forward"] == ["forward"]
    assert agree(profile)["outside"] > 0


def test_a_model_that_nobody_trains_is_forward_while_it_runs(recorded, net):
    def program():
        for step in range(STEPS):
            opscope.step(step)
            logits = net(batch()[0])  # in training mode, with gradients
            torch.softmax(logits, -1).multinomial(1)
        opscope.step(STEPS)

    profile = recorded(program)
    found = directions(profile)
    assert found["aten::addmm"] == ["forward"]
    assert found["aten::multinomial"] == found["aten::_softmax"] == [None]
    assert agree(profile)["outside"] > 0


def test_what_a_backward_pass_recomputes_is_forward_in_the_backward_phase(recorded, net):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def program():
        for _ in range(STEPS):
            images, labels = batch()
            logits = checkpoint(net, images, use_reentrant=False)
            functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            optimizer.zero_grad()

    profile = recorded(program)
    ops = profile.ops().filter(pl.col("op") == "aten::addmm")
    assert ops["direction"].unique().to_list() == ["forward"]
    assert len(ops) > 2 * STEPS, "products run twice"
    phases = profile.step_phases().group_by("phase").agg(pl.col("op_time").sum())
    backward = phases.filter(pl.col("phase") == "backward")["op_time"].item()
    own = profile.ops().filter(pl.col("direction") == "backward")["self_time"].sum()
    assert backward > own


def test_what_saves_a_checkpoint_is_one_whatever_writes_it(recorded, net, tmp_path):
    distributed = pytest.importorskip("torch.distributed.checkpoint")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def program():
        for step in range(STEPS):
            images, labels = batch()
            functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 1:
                torch.save(net.state_dict(), tmp_path / "net.pt")
            if step == 2:
                distributed.save(net.state_dict(), checkpoint_id=tmp_path / "net", no_dist=True)

    saves = recorded(program).wall_time().filter(pl.col("section") == "checkpoint")
    assert saves["count"].to_list() == [2]
