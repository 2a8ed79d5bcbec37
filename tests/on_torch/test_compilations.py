"""What torch.compile takes is a phase: of frames, of backward passes, each once, in the step it is in."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import os
import subprocess
import sys

import polars as pl
import pytest

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

from torch._dynamo import convert_frame
from torch._functorch._aot_autograd import runtime_wrappers
from torch.utils._python_dispatch import TorchDispatchMode

import opscope
from opscope.adapters.torch.dynamo import CAN_MARK

#: Older versions do not compile under a dispatch mode.
DISPATCH = hasattr(TorchDispatchMode, "ignore_compile_internals")
by_dispatch = pytest.mark.skipif(not DISPATCH, reason="this torch does not compile under a mode")


@pytest.fixture(autouse=True)
def clean():
    dynamo.reset()
    yield
    dynamo.reset()


def told(emitter):
    return [one for one in emitter.ranges if one.category == "phase" and "compile" in one.text]


def loss(x):
    return (x.sin() * 2).sum()


HERE = os.path.relpath(__file__)
LINE = loss.__code__.co_firstlineno


@by_dispatch
def test_a_frame_and_its_backward_pass_are_told(watched):
    emitter = watched.install()
    step = torch.compile(loss, backend="aot_eager")
    for size in (3, 3, 5):  # the third is compiled anew
        step(torch.ones(size, requires_grad=True)).backward()
    texts = [one.text for one in told(emitter)]
    assert texts[:2] == [f"compile 0/0 loss @{HERE}:{LINE}", "compile 0/0 backward"]
    assert texts[2] == f"compile 0/1 loss @{HERE}:{LINE}"
    assert all(one.closed for one in emitter.ranges)
    first, second = told(emitter)[:2]
    assert first.phase is None
    assert second.phase == "backward"
    # the passes that ran, and not those by which the compiler traces
    assert sum(one.text == "backward" for one in emitter.ranges) == 3
    assert not watched.broken


@by_dispatch
def test_without_sources_no_place_is_told(watched):
    emitter = watched.install(source=False)
    torch.compile(loss, backend="eager")(torch.ones(3))
    assert [one.text for one in told(emitter)] == ["compile 0/0 loss"]


@by_dispatch
def test_tracing_ends_no_forward_phase(watched):
    """A loss is compiled after the model has run, in the forward phase that lasts until the backward pass."""
    emitter = watched.install()
    model = torch.nn.Linear(3, 3)
    torch.compile(loss, backend="aot_eager")(model(torch.ones(2, 3))).backward()
    first, second = told(emitter)
    assert first.phase == "forward"
    assert second.phase == "backward"
    phases = [one.text for one in emitter.ranges if one.category == "phase"]
    assert phases == ["forward", first.text, "backward", second.text]
    assert all(one.closed for one in emitter.ranges if one.category == "phase")


@by_dispatch
def test_a_compilation_within_another_counts_once(watched):
    emitter = watched.install()
    inner = []

    def backend(graph, inputs):
        other = torch.compile(lambda x: x + 1, backend="eager")
        inner.append(other(torch.ones(2)).tolist())
        return graph.forward

    torch.compile(loss, backend=backend)(torch.ones(3))
    assert inner == [[2.0, 2.0]]
    assert dynamo.utils.counters["stats"]["unique_graphs"] >= 2
    assert len(told(emitter)) == 1


@by_dispatch
def test_an_error_of_the_backend_is_the_users_and_ends_the_phase(watched):
    emitter = watched.install()

    def backend(graph, inputs):
        raise ArithmeticError("theirs")

    with pytest.raises(Exception, match="theirs"):
        torch.compile(loss, backend=backend)(torch.ones(3))
    (one,) = told(emitter)
    assert one.closed
    assert emitter.stack() == []
    assert not watched.broken


@by_dispatch
@pytest.mark.parametrize("before", [True, False])
def test_a_capture_may_begin_or_end_in_a_compilation(watched, before):
    emitter = watched.install()

    def listen(active):
        emitter.active = active
        watched.adapter.listen()

    listen(before)

    def backend(graph, inputs):
        listen(not before)
        if not before:  # what is in it and begins in this capture is told
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        return graph.forward

    torch.compile(loss, backend=backend)(torch.ones(3))
    assert len(told(emitter)) == 1
    assert all(one.closed for one in told(emitter))
    listen(True)
    dynamo.reset()
    torch.compile(loss, backend="eager")(torch.ones(3))
    assert len(told(emitter)) == 2
    assert emitter.stack() == []
    assert not watched.broken


@by_dispatch
def test_our_fault_does_not_reach_the_program(watched, monkeypatch):
    emitter = watched.install()
    prepare = emitter.prepare

    def failing(what, category=None):
        if category == "phase":
            raise RuntimeError("ours")
        return prepare(what, category)

    monkeypatch.setattr(emitter, "prepare", failing)
    assert torch.compile(loss, backend="eager")(torch.zeros(3)) == 0
    assert watched.broken
    assert emitter.stack() == []


def test_the_compiler_is_put_back(watched):
    before = convert_frame._compile, runtime_wrappers.track_graph_compiling
    for _ in range(2):
        watched.install()
        assert convert_frame._compile is not before[0]
        assert runtime_wrappers.track_graph_compiling is not before[1]
        watched.adapter.uninstall()
        assert (convert_frame._compile, runtime_wrappers.track_graph_compiling) == before


PROGRAM = """
import sys
import torch
from torch import nn
assert "torch._dynamo" not in sys.modules, "it was imported for us"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x):  # line 11
        return self.second(self.first(x).relu())

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if sys.argv[1] == "model":
    model = torch.compile(net, backend="aot_eager")
    for _ in range(3):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
else:  # the backward pass begins between two graphs, where frames are traced
    @torch.compile(backend="aot_eager")
    def step(x):
        net(x).sum().backward()
        return x + 1
    for _ in range(3):
        step(torch.ones(3, 4))
counts = torch._dynamo.utils.counters
print("RESULT", dict(counts["stats"]), dict(counts["frames"]), sum(counts["graph_break"].values()),
      sum(counts["recompiles"].values()), net.first.weight.sum().item())
"""
MODES = ["native", pytest.param("dispatch", marks=by_dispatch)]


@pytest.fixture
def run(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)

    def run(what, mode=None):
        """What the program prints, and its profile where it is to be recorded."""
        profile = tmp_path / f"{what}_{mode}.opscope"
        ours = ("-m", "opscope", "run", "--no-report", "-o", str(profile), sys.executable)
        done = subprocess.run(
            [sys.executable, *(ours if mode else ()), str(script), what],
            env={**os.environ, "OPSCOPE_TORCH_OPS": mode or "", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
            capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        printed = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
        return printed, opscope.load(profile) if mode else None

    return run


@pytest.mark.parametrize("mode", MODES)
def test_a_first_step_that_compiles_says_so(run, mode):
    _, profile = run("model", mode)
    ranges = profile.trace["ranges"].cast({"text": pl.String, "category": pl.String})
    phases = ranges.filter(category="phase").sort("start")
    compiles = phases.filter(pl.col("text").str.starts_with("compile"))
    assert compiles["text"].to_list() == [
        "compile 0/0 Net.forward @program.py:11" if sys.version_info >= (3, 11)
        else "compile 0/0 forward @program.py:11",
        "compile 0/0 backward",
    ]  # fmt: skip
    (first,) = ranges.filter(category="step", text="step 0").to_dicts()
    assert compiles["start"].min() >= first["start"]
    assert compiles["end"].max() <= first["end"]
    names = phases.filter(~pl.col("text").str.starts_with("compile"))["text"].to_list()
    assert names == ["forward", "backward", "optimizer"] * 3
    reasons = dict(profile.unattributed().select("reason", "time").rows())
    compiling = reasons["inside steps, compiling a program"]
    # all of both, but for the ops in them
    whole = (compiles["end"] - compiles["start"]).sum()
    inside = sum(
        row["self_time"]
        for row in profile.ops().iter_rows(named=True)
        if any(
            c["start"] <= row["start"] < c["end"] and c["thread"] == row["thread"]
            for c in compiles.iter_rows(named=True)
        )
    )
    assert compiling == whole - inside
    assert sum(reasons.values()) == profile.summary()["unattributed_time"].item()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.skipif(
    not CAN_MARK, reason="in this torch our hooks between two graphs are frames too"
)
def test_it_is_compiled_as_without_us(run, mode):
    without, _ = run("step")
    within, profile = run("step", mode)
    assert within == without
    texts = profile.trace["ranges"]["text"].cast(pl.String)
    assert texts.filter(texts.str.contains(r"^compile \d+/\d+ backward$")).len() == 1
