"""What is done about gradients outside autograd's nodes: its direction, natively and by the dispatch mode."""

from __future__ import annotations

import sys
import types

import polars as pl
import pytest

import opscope
from opscope.core.rangetext import parse

torch = pytest.importorskip("torch")

from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # noqa: E402  bound before anything is hooked

from opscope.adapters.torch import gradients  # noqa: E402  it imports torch

pytestmark = pytest.mark.usefixtures("binary")


@pytest.fixture(params=["native", "dispatch"])
def directions(request, tmp_path, monkeypatch):
    """``directions(program)``: the distinct (op, category) that ran, told in one of both ways."""
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", request.param)

    def record(program):
        opscope.init(frameworks="torch")
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            program()
        opscope.shutdown()
        ranges = opscope.load(tmp_path / "run.opscope").trace["ranges"]
        told = ranges.filter(pl.col("text").cast(pl.String).str.contains("::"))
        rows = told.select(
            pl.col("text").cast(pl.String), pl.col("category").cast(pl.String)
        ).rows()
        return {(parse(text).name, category) for text, category in rows}

    return record


@pytest.fixture
def model():
    return torch.nn.Linear(4, 4)


def test_clipping_is_the_optimizers(directions, model):
    def program():
        model(torch.ones(2, 4)).sum().backward()
        clip_grad_norm_(model.parameters(), 1.0)
        clip_grad_value_(model.parameters(), 1.0)
        torch.nn.utils.get_total_norm([one.grad for one in model.parameters()])
        torch.ones(2).clamp(max=1.0)

    found = directions(program)
    for op in ("aten::_foreach_norm.Scalar", "aten::linalg_vector_norm", "aten::stack"):
        assert (op, "optimizer") in found
        assert (op, "forward") not in found
    assert ("aten::_foreach_clamp_min_.Scalar", "optimizer") in found
    assert ("aten::clamp", "forward") in found  # the user's own is not


def test_what_a_scaler_does_is_the_optimizers(directions, model):
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def program():
        scaler.scale(model(torch.ones(2, 4)).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)

    found = directions(program)
    for op in (
        "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::reciprocal",
        "aten::_amp_update_scale_", "aten::zero_",
    ):  # fmt: skip
        assert {category for name, category in found if name == op} == {"optimizer"}


@pytest.mark.parametrize("how", ["backward", "grad"])
def test_the_gradient_that_a_backward_begins_with_is_backward(directions, model, how):
    def program():
        loss = model(torch.ones(2, 4)).sum()
        if how == "backward":
            loss.backward()
        else:
            torch.autograd.grad(loss, list(model.parameters()))

    found = directions(program)
    assert {category for name, category in found if name == "aten::ones_like"} == {"backward"}
    assert ("aten::ones", "forward") in found


def test_it_is_of_no_forward_op(tmp_path, model):
    """The number that the next op of autograd will have is not its."""
    opscope.init(frameworks="torch")
    with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
    opscope.shutdown()
    ops = opscope.load(tmp_path / "run.opscope").ops().filter(op="aten::ones_like")
    assert ops["forward_op_id"].to_list() == ops["seq"].to_list() == [None, None]


def test_what_the_engine_calls_at_its_end_is_backward(directions, model):
    class Queues(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda: torch.full((3,), 1.0).cos())
            return grad

    found = directions(lambda: Queues.apply(model(torch.ones(2, 4))).sum().backward())
    assert {category for name, category in found if name == "aten::cos"} == {"backward"}


def test_a_clipping_that_raises_leaves_no_direction_behind(directions, model):
    def program():
        model(torch.ones(2, 4)).sum().backward()
        with pytest.raises(TypeError):
            clip_grad_norm_(model.parameters(), object())
        torch.ones(2).sin()

    assert ("aten::sin", "forward") in directions(program)


def test_everything_is_put_back(directions, model):
    inner = [cell.cell_contents for cell in clip_grad_norm_.__closure__]
    make = torch.autograd._make_grads
    directions(lambda: clip_grad_norm_(model.parameters(), 1.0))
    assert [cell.cell_contents for cell in clip_grad_norm_.__closure__] == inner
    assert torch.autograd._make_grads is make


def test_a_compiled_function_that_clips_is_compiled_once(directions, model):
    compiled = []

    def backend(graph, _):
        compiled.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def clip(grads):
        return torch.nn.utils.get_total_norm(grads) + 1

    def program():
        for _ in range(3):
            clip([torch.ones(3), torch.ones(4)])

    directions(program)
    assert len(compiled) == 1


def test_a_module_that_is_just_being_imported_is_left_alone(monkeypatch):
    """Recording may begin on another thread than the one that imports, as ``opscope attach`` does."""
    half = types.ModuleType(gradients._FSDP)
    monkeypatch.setitem(sys.modules, gradients._FSDP, half)
    assert all(owner is not half for owner, _, _ in gradients._functions())
