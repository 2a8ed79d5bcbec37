"""Advice on live trainings on the CPU: planted recompilations, graph breaks, unfused attention, anomaly mode."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

from torch.utils._python_dispatch import TorchDispatchMode

import opscope
from opscope.core.advice.finding import CannotTell
from tests.core.advice.made_runs import find

nn = torch.nn
#: Older versions do not compile under a dispatch mode.
by_dispatch = pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "ignore_compile_internals"),
    reason="this torch does not compile under a mode",
)


@pytest.fixture(autouse=True)
def clean(unobserved):
    dynamo.reset()
    yield
    dynamo.reset()


def train(path, run, parameters, steps=5, optimizer=None):
    """Record ``steps`` steps; ``run`` takes the step's number and returns a loss."""
    opscope.init(["torch"])
    optimizer = optimizer or torch.optim.SGD(parameters, lr=0.01, foreach=True)
    with opscope.capture(path):
        for step in range(steps):
            run(step).backward()
            optimizer.step()
            optimizer.zero_grad()
    return opscope.load(path)


class Attention(nn.Module):
    def __init__(self, size=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            one.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for one in self.qkv(x).chunk(3, -1)
        )
        scores = torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1)
        return (scores @ v).transpose(1, 2).reshape(x.shape)


@by_dispatch
def test_a_training_that_recompiles_for_each_shape(tmp_path):
    model = nn.Linear(8, 8)
    step = torch.compile(lambda x: model(x).relu().sum(), backend="aot_eager", dynamic=False)
    profile = train(tmp_path / "run", lambda n: step(torch.randn(2 + n, 8)), model.parameters())
    (found,) = find("recompilations", profile)
    assert "compiled again" in found.what
    assert "test_advice_fusion.py" in found.evidence
    assert "inputs of changing shape" in found.evidence
    assert found.time == found.saving_most > 0
    assert "dynamic=True" in found.recommendation
    first = profile.advice().filter(outcome="found")
    assert "recompilations" in first["detector"].to_list()


@by_dispatch
def test_a_training_of_one_shape_compiles_once(tmp_path):
    model = nn.Linear(8, 8)
    step = torch.compile(lambda x: model(x).relu().sum(), backend="aot_eager", dynamic=False)
    profile = train(tmp_path / "run", lambda n: step(torch.randn(4, 8)), model.parameters())
    assert find("recompilations", profile) == []
    assert find("graph_breaks", profile) == []
    assert find("no_fusion", profile) == []


@by_dispatch
def test_a_function_that_is_split(tmp_path):
    model = nn.Linear(8, 8)

    def split(x):
        x = model(x).relu()
        torch._dynamo.graph_break()
        return model(x).sum()

    step = torch.compile(split, backend="aot_eager")
    profile = train(tmp_path / "run", lambda n: step(torch.randn(4, 8)), model.parameters(), 3)
    (found,) = find("graph_breaks", profile)
    line = split.__code__.co_firstlineno + 2
    assert f":{line} in split" in found.evidence


def test_eager_attention_and_an_optimizer_of_loops(tmp_path):
    model = nn.Sequential(*(Attention() for _ in range(3)))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    profile = train(
        tmp_path / "run", lambda n: model(torch.randn(2, 64, 32)).sum(), None, 3, optimizer
    )
    (found,) = find("unfused_attention", profile)
    assert "64×64" in found.what
    ops = profile.ops()
    assert "(9 softmax ops" in found.what
    assert found.time <= ops["self_time"].sum()
    (found,) = find("unfused_optimizer", profile)
    assert "fused=True" in found.recommendation
    assert find("recompilations", profile) == []
    assert isinstance(find("no_ranges", profile), CannotTell)


def test_fused_attention_is_not_found(tmp_path):
    model = nn.MultiheadAttention(32, 4, batch_first=True)

    def run(_):
        x = torch.randn(2, 16, 32)
        return model(x, x, x, need_weights=False)[0].sum()

    profile = train(tmp_path / "run", run, model.parameters(), 2)
    assert find("unfused_attention", profile) == []


def test_weights_cast_under_autocast_and_anomaly_mode(tmp_path):
    model = nn.Sequential(nn.Linear(512, 768), nn.Linear(768, 512))

    def run(_):
        with torch.autocast("cpu", torch.bfloat16):
            return model(torch.randn(4, 512)).float().sum()

    with torch.autograd.set_detect_anomaly(True):
        profile = train(tmp_path / "run", run, model.parameters(), 4)
    (found,) = find("slow_api_flags", profile)
    assert "anomaly mode is on" in found.what
    casts = find("recomputed_casts", profile)
    if casts:  # on a slow machine the casts may be too small a part
        assert "2 weights" in casts[0].what
        assert "1.0 times a step each" in casts[0].what
