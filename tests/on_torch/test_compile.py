"""torch.compile under the adapter: same graphs, same breaks, same results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
dynamo = pytest.importorskip("torch._dynamo")

from torch.nn.modules import module as registry  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import opscope  # noqa: E402

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


@by_dispatch
def test_what_is_compiled_in_a_capture_is_not_compiled_anew_after_it(watched):
    emitter = watched.install()
    dynamo.utils.counters.clear()
    step = torch.compile(Block(False), backend="eager", fullgraph=True)
    for active in (True, False, True, False, True):
        emitter.active = active
        watched.adapter.listen()
        step(torch.ones(3, 4)).sum().backward()
    assert dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not watched.broken


def graphs(ways=(True, False)):
    """The code of the graphs that torch.compile and torch.export make of modules, however they are told."""
    codes = []

    def backend(graph, inputs):
        codes.append(graph.code)
        return graph.forward

    x = torch.ones(3, 4)
    model, hooked, inside = Block(False), Block(False), Block(False)
    hooked.first.register_forward_hook(lambda module, args, result: result + 1)
    model.compile(backend=backend)
    for call in (
        torch.compile(Block(False), backend=backend),
        torch.compile(Block(True), backend=backend),
        torch.compile(hooked, backend=backend),
        torch.compile(lambda x: inside(x) * 2, backend=backend),
        model,
    ):
        dynamo.reset()  # else one graph serves them all
        call(x)
    for strict in ways:
        codes.append(torch.export.export(Block(False), (x,), strict=strict).module().code)
    return codes


@pytest.mark.filterwarnings("error:Using .torch.compile:UserWarning")
@by_dispatch
def test_graphs_are_those_without_us_to_the_order_of_their_inputs(watched):
    """The compile cache has them as its key; and no warning tells of hooks that are ours alone."""
    without = graphs()
    watched.install()
    assert graphs() == without
    assert len(without) == 8
    assert not watched.broken


def hooked_before():
    model = Block(False)
    model.first.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return torch.compile(model, backend="eager")


def hooked_after():
    model = Block(False)
    model.first.register_forward_hook(lambda module, args, result: result + 1)
    return torch.compile(model, backend="eager")


def hooked_outside():
    model = Block(False)
    model.register_forward_hook(lambda module, args, result: result + 1)
    return torch.compile(model, backend="eager")


def in_place():
    model = Block(False)
    model.compile(backend="eager")
    return model


def in_a_function():
    model = Block(True)
    return torch.compile(lambda x: model(x) + 1, backend="eager")


@pytest.mark.parametrize(
    "make", [hooked_before, hooked_after, hooked_outside, in_place, in_a_function]
)
def test_no_guard_asks_for_our_hooks(tmp_path, make):
    """Nor that there are none: what is compiled within and without a capture runs in both."""

    def graphs_of(call):
        return call(torch.ones(3, 4)), dynamo.utils.counters["stats"]["unique_graphs"]

    def fresh():
        dynamo.reset()
        dynamo.utils.counters.clear()
        torch.manual_seed(0)
        return make()

    model = fresh()
    plain, without = graphs_of(model)
    assert without > 0
    opscope.init()
    try:
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            model = fresh()
            seen = [graphs_of(model), graphs_of(model)]
        seen += [graphs_of(model), graphs_of(model)]
        model = fresh()
        seen.append(graphs_of(model))
        with opscope.capture(tmp_path / "run.opscope", backend="recorder", force=True):
            seen += [graphs_of(model), graphs_of(model)]
        seen.append(graphs_of(model))
    finally:
        opscope.shutdown()
    assert [number for _, number in seen] == [without] * 8
    assert all(torch.equal(result, plain) for result, _ in seen)


@pytest.fixture
def others_hook():
    handle = registry.register_module_forward_pre_hook(lambda module, args: (args[0] * 2,))
    yield handle
    handle.remove()


@by_dispatch
def test_the_hooks_of_others_stay_and_are_warned_of(watched, others_hook):
    ways = (False,)  # strictly it refuses modules with hooks
    without = graphs(ways)
    watched.install()
    with pytest.warns(UserWarning, match="global hooks"):
        compiled_run("eager", False)
    assert graphs(ways) == without
    watched.adapter.uninstall()
    assert list(registry._global_forward_pre_hooks) == [others_hook.id]
    assert not watched.broken


@by_dispatch
def test_captures_may_begin_and_end_while_something_is_compiled(watched):
    theirs = nn.Module._call_impl
    emitter = watched.install()
    assert nn.Module._call_impl is not theirs
    seen = []

    def backend(graph, inputs):
        seen.append(nn.Module._call_impl is theirs)
        emitter.active = not emitter.active
        watched.adapter.listen()
        seen.append(nn.Module._call_impl is theirs)
        return graph.forward

    for ours in (False, True):  # a capture ends; one begins
        dynamo.reset()
        torch.compile(Block(False), backend=backend)(torch.ones(3, 4))
        assert (nn.Module._call_impl is not theirs) == ours
    assert seen == [True] * 4
    watched.adapter.uninstall()
    assert nn.Module._call_impl is theirs
    assert not watched.broken


@by_dispatch
def test_the_tracer_is_put_back(watched):
    names = ("_compile", "get_traced_fn")
    from torch._dynamo import convert_frame, functional_export

    before = [vars(one).get(name) for one in (convert_frame, functional_export) for name in names]
    ask = registry._has_any_global_hook
    watched.install()
    assert convert_frame._compile is not before[0]
    assert functional_export.get_traced_fn is not before[3]
    watched.adapter.uninstall()
    after = [vars(one).get(name) for one in (convert_frame, functional_export) for name in names]
    assert after == before
    assert registry._has_any_global_hook is ask


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
