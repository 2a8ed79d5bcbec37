"""What else PyTorch does goes on as without us, and is seen."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pytest

import opscope
from opscope.adapters.torch.native.binary import BuildError, build, plan
from opscope.core.schema import TensorSpec
from tests.gloo import ABORTS

torch = pytest.importorskip("torch")
F = torch.nn.functional
nn = torch.nn

ROOT = Path(__file__).resolve().parents[2]


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))


def gradients(net):
    return [p.grad for p in net.parameters()]


def test_results_are_those_without_us(watched):
    torch.manual_seed(1)
    x = torch.randn(3, 4)
    plain = model()
    plain(x).sum().backward()
    watched.install()
    seen = model()
    seen(x).sum().backward()
    for one, other in zip(gradients(plain), gradients(seen), strict=True):
        assert torch.equal(one, other)


def test_autocast_shows_the_op_as_it_ran(emitter):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model()(torch.ones(3, 4))
    assert out.dtype is torch.bfloat16
    ops = emitter.named("aten::addmm")
    assert len(ops) == 2
    assert all(spec.dtype == "bf16" for op in ops for spec in op.call.input_leaves())


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_without_gradients_no_op_claims_a_node(emitter, guard):
    net = model().eval()
    with guard():
        net(torch.ones(3, 4))
    # In inference mode no autograd kernel takes ``linear`` apart before it comes to us.
    (op, _) = emitter.named("aten::addmm") or emitter.named("aten::linear")
    assert op.seq == -1
    assert op.category == "forward"
    assert emitter.stack() == []


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_forward(emitter, reentrant):
    from torch.utils.checkpoint import checkpoint

    net = model()
    x = torch.ones(3, 4, requires_grad=True)
    checkpoint(net, x, use_reentrant=reentrant).sum().backward()
    again = [op for op in emitter.named("aten::addmm") if op.phase == "backward"]
    assert {op.category for op in again} == {"forward"}
    # without re-entrance it stops as soon as it has what the backward pass saved
    layers = {"Sequential.0", "Sequential.2"} if reentrant else {"Sequential.0"}
    assert {op.layer for op in again} == layers
    made = {
        (op.fwd_thread, op.seq)
        for op in emitter.named("aten::addmm")
        if op.category == "forward" and op.seq >= 0
    }
    for op in emitter.named("aten::mm", "backward"):
        assert (op.fwd_thread, op.seq) in made


def test_custom_autograd_function(emitter):
    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    Triple.apply(torch.ones(3, requires_grad=True)).sum().backward()
    forward, backward = emitter.named("aten::mul.Tensor")
    assert (forward.category, backward.category) == ("forward", "backward")
    assert forward.seq == backward.seq >= 0


def test_deepcopy_pickle_save_load(emitter, tmp_path):
    net = model()
    net(torch.ones(1, 4))
    keys = set(vars(net[0]))
    other = copy.deepcopy(net)
    torch.save(net, tmp_path / "net.pt")
    loaded = torch.load(tmp_path / "net.pt", weights_only=False)
    x = torch.ones(1, 4)
    assert torch.equal(net(x), other(x))
    assert torch.equal(net(x), loaded(x))
    assert torch.equal(net(x), pickle.loads(pickle.dumps(net))(x))  # noqa: S301 - our own bytes
    assert set(vars(net[0])) == keys == set(vars(nn.Linear(1, 1)))


def test_functorch(emitter):
    from torch.func import grad, vmap

    assert torch.equal(vmap(torch.sin)(torch.ones(3)), torch.ones(3).sin())
    assert torch.equal(grad(lambda x: (x**2).sum())(torch.ones(3)), torch.full((3,), 2.0))
    per_sample = vmap(grad(lambda w, x: (w * x).sum()), (None, 0))(torch.ones(3), torch.ones(5, 3))
    assert per_sample.shape == (5, 3)
    assert emitter.named("aten::sin")


def test_jit_script_and_trace(emitter):
    @torch.jit.script
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert torch.equal(double(torch.ones(3)), torch.full((3,), 2.0))
    net = torch.jit.script(model())
    assert net(torch.ones(1, 4)).shape == (1, 2)
    traced = torch.jit.trace(model().requires_grad_(False), torch.ones(1, 4))
    assert traced(torch.ones(1, 4)).shape == (1, 2)


def test_export_fx_fake_and_symbolic_sizes(emitter):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    program = torch.export.export(model(), (torch.ones(3, 4),))
    assert program.module()(torch.ones(3, 4)).shape == (3, 2)
    batch = torch.export.Dim("batch", min=2)
    dynamic = torch.export.export(model(), (torch.ones(3, 4),), dynamic_shapes=({0: batch},))
    assert dynamic.module()(torch.ones(7, 4)).shape == (7, 2)
    torch.fx.symbolic_trace(model())
    graph = make_fx(lambda x: x.sin() @ x.t(), tracing_mode="symbolic")(torch.ones(3, 4))
    assert any(
        str(dim).startswith("s")
        for dim in graph.graph.find_nodes(op="placeholder")[0].meta["val"].shape
    )
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(3))
        assert (fake + fake).shape == (3,)


def test_tensors_of_every_kind(emitter):
    torch.ones(3, device="meta") + 1
    sparse = torch.eye(3).to_sparse()
    (sparse @ torch.ones(3, 3)).sum()
    torch.eye(3).to_sparse_csr() @ torch.ones(3, 2)
    strided = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    strided + strided
    jagged = torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True
    )
    (jagged * 2).values().sum().backward()
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    quantised.dequantize()
    torch.view_as_real(torch.ones(3, dtype=torch.complex64) * 1j)
    torch.ones(2, 4).to(torch.uint8).view(torch.float4_e2m1fn_x2)
    torch.ones(3).to(torch.float8_e4m3fn)
    torch.ones(0, 3).sum()
    torch.tensor(3.0).item()
    assert emitter.named("aten::add.Tensor")[0].call.device == "meta"
    assert emitter.named("aten::quantize_per_tensor")[0].call.outputs[0].dtype == "qint8"
    assert emitter.named("aten::_to_copy")[-1].call.outputs[0].dtype == "f8e4m3fn"
    assert emitter.named("aten::view.dtype")[-1].call.outputs[0] == TensorSpec("u8", (2, 4))


def test_subclass_whose_code_raises(emitter):
    class Hostile(torch.Tensor):
        @property
        def dtype(self):
            raise ValueError("no dtype for you")

    x = torch.ones(3).as_subclass(Hostile)
    assert torch.equal((x + 1).as_subclass(torch.Tensor), torch.full((3,), 2.0))
    assert emitter.named("aten::add.Tensor")


def test_users_own_modes_come_and_go(emitter):
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
    from torch.utils.flop_counter import FlopCounterMode

    class Mine(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    before = _get_current_dispatch_mode_stack()
    with Mine():
        model()(torch.ones(2, 4))
    counter = FlopCounterMode(display=False)
    with counter:
        model()(torch.ones(2, 4))
    assert counter.get_total_flops() == 2 * 2 * (4 * 8 + 8 * 2)
    assert _get_current_dispatch_mode_stack() == before
    assert len(emitter.named("aten::addmm")) == 4


def test_a_thread_entered_late_does_not_break_its_with_block(watched):
    """The mode goes below a mode of the user's that is already on the thread's stack."""
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

    class Mine(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    ready, go, left = threading.Event(), threading.Event(), []

    def work():
        with Mine():
            ready.set()
            go.wait(30)
            model()(torch.ones(2, 4))
        left.extend(type(mode).__name__ for mode in _get_current_dispatch_mode_stack())

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(30)
    emitter = watched.install()
    go.set()
    thread.join()
    assert left == ["OpMode"]
    assert len(emitter.named("aten::addmm")) == 2


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(index)) * 2


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_with_workers(emitter, context):
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=1, multiprocessing_context=context
    )
    total = sum(batch.sum().item() for batch in loader)
    assert total == 4 * 2 * sum(range(8))
    assert [one.text for one in emitter.ranges if one.category == "phase"].count("input") == 3


def test_data_loader_in_process_is_input(emitter):
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=4):
        batch.sum()
    assert {op.category for op in emitter.named("aten::mul.Tensor")} == {"input"}
    assert {op.category for op in emitter.named("aten::sum")} == {"forward"}


def scaled_gradients():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.ones(3, 4)).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return gradients(net)


def cuda_autocast_without_cuda():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and of no effect here
        with torch.cuda.amp.autocast():
            return [model()(torch.ones(3, 4))]


def checkpointed(reentrant, **options):
    from torch.utils.checkpoint import checkpoint

    net = model()
    net[1] = nn.Tanh()  # selective checkpoints refuse what writes in place
    x = torch.ones(3, 4, requires_grad=True)
    checkpoint(net, x, use_reentrant=reentrant, **options).sum().backward()
    return [*gradients(net), x.grad]


def selectively_checkpointed():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(ctx, op, *args, **kwargs):
        keep = op is torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return checkpointed(False, context_fn=lambda: create_selective_checkpoint_contexts(policy))


def saved_elsewhere():
    net = model()
    with torch.autograd.graph.save_on_cpu():
        net(torch.ones(3, 4)).square().sum().backward()
    return gradients(net)


def transformed():
    from torch import func

    net = model()
    parameters = {name: one.detach() for name, one in net.named_parameters()}

    def loss(parameters, x):
        return func.functional_call(net, parameters, (x,)).square().sum()

    x = torch.ones(5, 3, 4)
    each = func.vmap(func.grad(loss), (None, 0))(parameters, x)
    jacobians = [one(torch.sin)(torch.ones(3)) for one in (func.jacrev, func.jacfwd)]
    return [*each.values(), *jacobians, func.hessian(lambda x: x.pow(3).sum())(torch.ones(3))]


def scripted():
    net = torch.jit.script(model())
    for _ in range(3):  # the profiling executor optimises after the first
        result = net(torch.ones(3, 4))
    result.sum().backward()
    frozen = torch.jit.freeze(torch.jit.script(model().eval()))
    return [*gradients(net), frozen(torch.ones(3, 4))]


def traced():
    example = torch.ones(3, 4)
    return [torch.jit.trace(model(), example)(example), torch.jit.trace_module(
        model().requires_grad_(False), {"forward": example})(example)]  # fmt: skip


@torch.jit.script
def forked(x: torch.Tensor) -> torch.Tensor:
    return torch.jit.wait(torch.jit.fork(torch.sin, x)) + 1


def exported():
    program = torch.export.export(model(), (torch.ones(3, 4),))
    return [
        program.module()(torch.ones(3, 4)),
        program.run_decompositions().module()(torch.ones(3, 4)),
    ]


#: What PyTorch offers → a program of it, and ops that it must show.
PROGRAMS = {
    "torch.amp": (scaled_gradients, {"aten::addmm", "aten::_amp_foreach_non_finite_check_and_unscale_"}),
    "torch.cuda.amp": (cuda_autocast_without_cuda, {"aten::addmm"}),
    "checkpoint, reentrant": (lambda: checkpointed(True), {"aten::addmm", "aten::mm"}),
    "checkpoint": (lambda: checkpointed(False), {"aten::addmm", "aten::mm"}),
    "checkpoint, selective": (selectively_checkpointed, {"aten::addmm", "aten::mm"}),
    "save_on_cpu": (saved_elsewhere, {"aten::addmm", "aten::mm"}),
    "torch.func": (transformed, {"aten::cos", "aten::bmm"}),
    "jit.script": (scripted, {"aten::addmm", "aten::mm"}),
    "jit.trace": (traced, {"aten::addmm"}),
    "jit.fork": (lambda: [forked(torch.ones(3))], {"aten::sin"}),
    "torch.export": (exported, {"aten::addmm"}),
}  # fmt: skip


@pytest.mark.parametrize("how", ["native", "dispatch"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_goes_on_as_without_us(name, how, tmp_path, monkeypatch, caplog):
    """The same results, the ops in the profile, and no fault of ours; observed in either way."""
    program, ops = PROGRAMS[name]
    if how == "native":
        try:
            build(plan())
        except BuildError as error:
            pytest.skip(str(error))
    plain = program()
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", how)
    opscope.init()
    try:
        with opscope.capture(tmp_path / "run.opscope", backend="recorder"):
            seen = program()
    finally:
        opscope.shutdown()
    assert len(plain) == len(seen)
    assert all(torch.equal(one, other) for one, other in zip(plain, seen, strict=True))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    profile = opscope.load(tmp_path / "run.opscope")
    found = {op.partition(".")[0] for op in profile.ops()["op"].cast(str).to_list()}
    assert ops <= found
    assert not profile.notes()["what"].str.contains("could not be described").any()


def test_two_processes_with_gloo(tmp_path):
    """Two ranks under DistributedDataParallel: the gradients agree, each rank sees its own ops."""
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import importlib.util, sys
            import torch, torch.distributed as dist
            spec = importlib.util.spec_from_file_location(
                "watching", {str(Path(__file__).parent / "conftest.py")!r})
            watching = importlib.util.module_from_spec(spec)
            sys.modules["watching"] = watching
            spec.loader.exec_module(watching)
            rank = int(sys.argv[1])
            watched = watching.Watched()
            emitter = watched.install()
            dist.init_process_group(
                "gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
            torch.manual_seed(0)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.full((3, 4), float(rank))).sum().backward()
                optimizer.step()
            print(model.module.weight.grad.sum().item())
            assert not watched.broken
            assert emitter.named("aten::addmm")[0].layer == "Linear", emitter.named("aten::addmm")
            names = {{op.call.name for op in emitter.ops if op.category == "communication"}}
            assert any(name.startswith("c10d::allreduce") for name in names), names
            assert emitter.named("aten::mm", "backward")
            dist.destroy_process_group()
            """
        )
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for attempt in range(3):
        ranks = [
            subprocess.Popen(
                [sys.executable, str(script), str(rank), str(tmp_path / f"store{attempt}")],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        outputs = [rank.communicate(timeout=120) for rank in ranks]
        if not any(ABORTS in error for _, error in outputs):
            break
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
