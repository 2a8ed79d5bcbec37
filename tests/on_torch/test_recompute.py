"""What checkpointing computes again counts for the hardware, not for the model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerActivity  # noqa: E402
from torch.profiler import profile as record  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import opscope  # noqa: E402

pytestmark = pytest.mark.usefixtures("unobserved")

FORWARD = 2 * (2 * 16 * 32 * 64)


def network(again):
    """Two products, one without a bias, which no name gives away; ``again`` is the kind of checkpoint."""
    plain = torch.nn.Linear(32, 64, bias=False)
    biased = torch.nn.Linear(64, 32)

    def both(x):
        return biased(torch.relu(plain(x)))

    def step():
        x = torch.randn(16, 32, requires_grad=True)
        y = both(x) if again is None else checkpoint(both, x, use_reentrant=again)
        y.sum().backward()

    return torch.nn.ModuleList([plain, biased]), step


def kineto(again, folder):
    _, step = network(again)
    with (
        record(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler,
        torch.profiler.record_function("ProfilerStep#3"),
    ):
        step()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    return path


def recorded(again, folder):
    kept, step = network(again)
    path = folder / "run.opscope"
    with opscope.capture(path):
        opscope.step(0)
        step()
        opscope.step(1)
    del kept
    return path


@pytest.mark.parametrize("taken", [kineto, recorded])
@pytest.mark.parametrize("again", [None, True, False])
def test_model_flops_are_those_without_checkpointing(taken, again, tmp_path):
    found = opscope.load(taken(again, tmp_path)).utilization().row(0, named=True)
    assert found["model_flops"] == 3 * FORWARD
    assert found["done_flops"] == (3 if again is None else 4) * FORWARD
