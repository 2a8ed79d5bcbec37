"""Models of torch.nn trained with Adam: every op described, every backward op linked to its forward op."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.on_torch.torch_programs import Experts, Recurrent, UNet  # noqa: E402

nn = torch.nn

MODELS = {
    "GRU": lambda: (Recurrent(), torch.randn(2, 5, 8)),
    "experts": lambda: (Experts(), torch.randn(2, 5, 8)),
    "U-Net": lambda: (UNet(), torch.randn(2, 3, 16, 16)),
    "transformer": lambda: (
        nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
        torch.randn(2, 5, 16),
        torch.randn(2, 4, 16),
    ),
    "embedding": lambda: (
        nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(40, 2)),
        torch.randint(0, 10, (2, 5)),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_op_is_described_and_every_backward_op_linked(watched, name):
    model, *inputs = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters())
    emitter = watched.install()
    for _ in range(2):
        optimizer.zero_grad()
        model(*inputs).square().sum().backward()
        optimizer.step()
    assert not watched.broken
    made = {}
    for op in emitter.ops:
        assert op.call.outputs is not None, op
        assert op.call.device == "cpu" or not op.call.inputs, op
        if op.category == "forward" and op.seq >= 0:
            assert (op.fwd_thread, op.seq) not in made, op
            made[op.fwd_thread, op.seq] = op
    model_ops = [
        op for op in made.values() if op.call.name not in ("aten::pow.Tensor_Scalar", "aten::sum")
    ]
    assert all(op.layer for op in model_ops)
    backward = [op for op in emitter.ops if op.category == "backward"]
    # AccumulateGrad has no forward op; with gradients set to none all it does is to detach. Nor has the
    # gradient that the backward pass begins with.
    unlinked = [op for op in backward if (op.fwd_thread, op.seq) not in made]
    assert {op.call.name for op in unlinked} <= {"aten::detach", "aten::ones_like"}
    assert all(op.call.frames for op in backward if op.seq >= 0)
    assert backward
