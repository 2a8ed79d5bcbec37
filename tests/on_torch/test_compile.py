"""torch.compile under the adapter: same graphs, same breaks, same results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

F = torch.nn.functional
nn = torch.nn


class Block(nn.Module):
    def __init__(self, breaks):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)
        self.breaks = breaks

    def forward(self, x):
        x = F.relu(self.first(x))
        if self.breaks:
            dynamo.graph_break()
        return self.second(x)


def compiled_run(backend, breaks):
    """The counts of one training step of a compiled model, its gradients, and its second step's."""
    dynamo.reset()
    dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = Block(breaks)
    step = torch.compile(model, backend=backend, fullgraph=not breaks)
    for _ in range(3):
        step(torch.ones(3, 4)).sum().backward()
    counters = dynamo.utils.counters
    counts = {
        "graphs": counters["stats"]["unique_graphs"],
        "ops": counters["stats"]["calls_captured"],
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters["recompiles"].values()),
        "frames": dict(counters["frames"]),
    }
    return counts, [p.grad for p in model.parameters()]


@pytest.fixture(autouse=True)
def clean():
    yield
    dynamo.reset()


#: Of older versions a dispatch mode hinders torch.compile, which is logged; the native observer does not.
by_dispatch = pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "ignore_compile_internals"),
    reason="this torch does not compile under a dispatch mode",
)


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@by_dispatch
def test_graphs_and_breaks_are_those_without_us(watched, backend, breaks):
    without, plain = compiled_run(backend, breaks)
    emitter = watched.install()
    within, seen = compiled_run(backend, breaks)
    assert within == without
    assert without["graphs"] == (2 if breaks else 1)
    for one, other in zip(plain, seen, strict=True):
        assert torch.equal(one, other)
    assert emitter.named("aten::addmm")
    assert emitter.named("aten::mm", "backward")
    assert not watched.broken


def test_function_with_a_gradient_inside(watched):
    def run():
        dynamo.reset()
        dynamo.utils.counters.clear()

        def function(x):
            y = (x * 2).sin()
            return torch.cos(y)

        torch.compile(function, backend="eager", fullgraph=True)(torch.ones(3, requires_grad=True))
        return dict(dynamo.utils.counters["stats"])

    without = run()
    watched.install()
    assert run() == without
    assert not watched.broken


@by_dispatch
def test_capture_that_begins_later_does_not_recompile(watched):
    """Starting and stopping to listen changes no guard of a model compiled before."""
    emitter = watched.install()
    watched.emitter.active = False
    watched.adapter.listen()
    dynamo.utils.counters.clear()
    step = torch.compile(Block(False), backend="eager", fullgraph=True)
    for active in (False, True, False, True):
        emitter.active = active
        watched.adapter.listen()
        step(torch.ones(3, 4)).sum().backward()
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert emitter.named("aten::addmm")


@pytest.mark.slow
@by_dispatch
def test_inductor_on_cpu(watched):
    without, plain = compiled_run("inductor", False)
    emitter = watched.install()
    within, seen = compiled_run("inductor", False)
    assert within == without
    for one, other in zip(plain, seen, strict=True):
        assert torch.allclose(one, other)
    assert emitter.ranges
    assert not watched.broken


@pytest.mark.parametrize("breaks", [False, True])
def test_graphs_and_breaks_under_the_native_observer(breaks, tmp_path):
    import opscope
    from opscope.adapters.torch.dynamo import CAN_MARK
    from opscope.adapters.torch.native.binary import BuildError, build, plan

    try:
        build(plan())
    except BuildError as error:
        pytest.skip(str(error))
    without, plain = compiled_run("aot_eager", breaks)
    opscope.init()
    try:
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            within, seen = compiled_run("aot_eager", breaks)
    finally:
        opscope.shutdown()
    if not CAN_MARK:  # our hooks between two graphs are frames to it as well
        del within["frames"], without["frames"]
    assert within == without
    for one, other in zip(plain, seen, strict=True):
        assert torch.equal(one, other)
    names = opscope.load(tmp_path / "run.opscope").ops()["op"].cast(str).to_list()
    assert {"aten::addmm", "aten::mm"} <= set(names)
