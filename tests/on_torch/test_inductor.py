"""Compiled regions: each call of a compiled graph, its kernels, what they fuse and from which lines."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import linecache
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import polars as pl
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode

import opscope
from opscope.adapters.torch import provenance
from opscope.core.rangetext import parse

PROGRAM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Sequential(nn.Linear(32, 4), nn.Sigmoid())
    def forward(self, x):
        h = torch.relu(self.a(x))  # line 10
        h = h * torch.tanh(h)
        torch._dynamo.graph_break()
        return self.b(h).softmax(-1)  # line 13

torch.manual_seed(0)
net = Net()
step = torch.compile(net)
for _ in range(3):
    loss = step(torch.ones(8, 16)).pow(2).sum()
    loss.backward()
stats = torch._dynamo.utils.counters
print("RESULT", stats["stats"]["unique_graphs"], sum(stats["graph_break"].values()),
      sum(stats["recompiles"].values()), stats["inductor"]["fxgraph_cache_hit"],
      stats["inductor"]["fxgraph_cache_miss"], stats["aot_autograd"]["autograd_cache_hit"],
      stats["aot_autograd"]["autograd_cache_miss"], stats["aot_autograd"]["autograd_cache_bypass"],
      f"{net.a.weight.grad.sum().item():.6f}")
"""


class Ran:
    """A program run with and without us, in processes of their own that share a compile cache."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.script = folder / "compiled.py"
        self.script.write_text(PROGRAM)
        self.without = self.run("theirs")
        self.within, self.profile = self.recorded("ours", "first")

    def run(self, cache: str, *command: str) -> list[str]:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self.folder / cache),
               "OPSCOPE_TORCH_OPS": "dispatch", "OPSCOPE_CACHE": str(self.folder / "known")}  # fmt: skip
        done = subprocess.run(
            [sys.executable, *command, str(self.script)], capture_output=True, text=True, env=env,
            cwd=self.folder, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
        return line.split()[1:]

    def recorded(self, cache: str, name: str):
        profile = self.folder / f"{name}.opscope"
        command = ("-m", "opscope", "run", "--no-report", "-o", str(profile), sys.executable)
        return self.run(cache, *command), opscope.load(profile)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    if not hasattr(TorchDispatchMode, "ignore_compile_internals"):
        pytest.skip("a dispatch mode hinders this PyTorch's compilation, which is logged")
    return Ran(tmp_path_factory.mktemp("compiled"))


@pytest.mark.slow
def test_graphs_breaks_and_results_are_those_without_us(ran):
    assert ran.within == ran.without
    assert ran.without[:2] == ["2", "1"]
    notes = dict(ran.profile.notes().select("what", "how_many").rows())
    assert notes["torch.compile: graphs made since the program began"] == 2
    broken = [what for what in notes if what.startswith("torch.compile: graph breaks: ")]
    assert len(broken) == 1


def check(profile):
    frame = profile.compiled().cast(dict.fromkeys(("region", "name", "fused", "source"), pl.String))
    assert frame["region"].n_unique() == 2
    assert frame["region"].str.contains(r"^Torch-Compiled Region: \d/0$").all()
    assert set(frame["direction"].cast(pl.String)) == {"forward", "backward"}
    kernels = frame.filter(pl.col("name").str.starts_with("cpp_fused"))
    assert set(kernels["calls"]) == {3}
    assert kernels["fused"].is_not_null().all()
    assert kernels["source"].str.contains(r"compiled\.py:1[013]").all()
    forward = kernels.filter(pl.col("direction").cast(pl.String) == "forward")
    (tanh,) = forward.filter(pl.col("name").str.contains("tanh")).to_dicts()
    assert tanh["fused"] == "aten::relu, aten::tanh, aten::mul.Tensor"
    assert tanh["source"].endswith("compiled.py:10")
    ops = profile.ops().with_columns(pl.col("op", "params").cast(pl.String))
    (params,) = ops.filter(op=tanh["name"])["params"].unique()
    assert "compiled.py:11" in params  # the other line that it fuses
    last = ops.filter(pl.col("op").str.starts_with("cpp_fused__softmax_"))["params"]
    assert last.str.contains('layers="b').any()  # the sigmoid's module, or the linear's before it
    shapes = ops.filter(op=tanh["name"])["inputs"].cast(pl.String).unique().to_list()
    assert shapes == ["f32[8,32], f32[8,32]"]
    # what a region runs and what is left add up to its own time
    regions_time = ops.filter(pl.col("op").str.starts_with("Torch-Compiled Region"))["cpu_time"]
    assert frame["time"].sum() == regions_time.sum()


@pytest.mark.slow
def test_regions_have_their_kernels_with_ops_lines_and_shapes(ran):
    check(ran.profile)


@pytest.mark.slow
def test_what_inductor_takes_from_its_cache_is_known_too(ran):
    seen, profile = ran.recorded("ours", "second")
    assert int(seen[3]) > 0, "this torch takes nothing from its cache: the test tests nothing"
    check(profile)


def without_places(content):
    """What is in a compiled file, less where this environment and this clone lie: names of folders."""
    places = {sys.prefix, sys.exec_prefix, Path(torch.__file__).parent, Path(__file__).parents[2]}
    for place in sorted(
        {str(p) for p in places} | {os.path.realpath(p) for p in places}, key=len, reverse=True
    ):
        content = content.replace(place.encode(), b"")
    return content


@pytest.mark.slow
def test_the_compile_cache_serves_runs_with_and_without_us_alike(ran):
    again = ran.run("theirs")
    assert int(again[3]) > 0, "this torch takes nothing from its cache: the test tests nothing"
    assert int(again[4]) == 0
    within, _ = ran.recorded("theirs", "warm")
    assert within == again
    assert ran.run("ours") == again
    kept = [path for path in (ran.folder / "ours").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"opscope" in without_places(path.read_bytes())]


# --------------------------------------------------------------------- with a compiler of our own


class Graph:
    """What stands for Inductor's compiled graph."""

    def __init__(self, run, backward=False):
        self.current_callable = run
        self.fx_kwargs = {"is_backward": backward}

    __hash__ = None

    def __call__(self, inputs):
        return self.current_callable(inputs)

    def post_compile(self, example_inputs, constants, graph_kwargs):
        return "done"


class Autotuner:
    def __init__(self, name):
        self.inductor_meta = {"kernel_name": name}

    def run(self, *args, stream, benchmark_run=False):
        return ("ran", args, stream)


@pytest.fixture
def generated(monkeypatch, tmp_path):
    """A generated module, and Inductor's modules that know it."""
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path))
    code = ModuleType("generated")
    code.__file__ = str(tmp_path / "cabc.py")
    code.extern_kernels = None
    exec(
        "def cpp_fused_add_0(a, b, size):\n    return (a, b, size)\n"
        "def call(args):\n    return cpp_fused_add_0(args[0], args[0], 7), kernel.run(args[0], stream=5)\n",
        code.__dict__,
    )
    code.kernel = Autotuner("triton_poi_fused_mul_1")
    fakes = {
        "torch._inductor.output_code": SimpleNamespace(CompiledFxGraph=Graph),
        "torch._inductor.runtime.triton_heuristics": SimpleNamespace(CachingAutotuner=Autotuner),
        "torch._inductor.codecache": SimpleNamespace(PyCodeCache=SimpleNamespace(modules=[code])),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    return code


def originals(code):
    return (Graph.__dict__["__call__"], Graph.__dict__["post_compile"], Autotuner.__dict__["run"],
            code.cpp_fused_add_0)  # fmt: skip


def test_kernels_of_both_kinds_are_ranges_in_their_region(watched, generated):
    before = originals(generated)
    emitter = watched.install()
    watched.adapter._followers[1]._observe_compiler(sys.modules["torch._inductor.output_code"])
    graph, back = Graph(generated.call), Graph(generated.call, backward=True)
    assert graph.post_compile(None, None, {"is_backward": False}) == "done"
    one = torch.ones(2, 3)
    for each in (graph, back):
        assert each([one]) == ((one, one, 7), ("ran", (one,), 5))
    found = [(r.call.name, r.category, tuple(p.call.name for p in r.parents)) for r in emitter.ranges
             if "fused" in r.text or "Region" in r.text]  # fmt: skip
    region = "Torch-Compiled Region: ?"
    assert found == [
        (region, way, ()) if name == region else (name, way, (region,))
        for way in ("forward", "backward")
        for name in (region, "cpp_fused_add_0", "triton_poi_fused_mul_1")
    ]
    kernel = parse(emitter.named("cpp_fused_add_0")[0].text)
    assert [one.shape for one in kernel.inputs] == [(2, 3), (2, 3)]
    assert kernel.device == "cpu"
    assert all(one.closed for one in emitter.ranges)
    watched.adapter.uninstall()
    assert originals(generated) == before
    assert not watched.broken


def test_nothing_is_exchanged_while_nothing_listens(watched, generated):
    before = originals(generated)
    emitter = watched.install()
    emitter.active = False
    watched.adapter.listen()
    now = originals(generated)
    assert (now[0], *now[2:]) == (before[0], *before[2:])
    emitter.active = True
    watched.adapter.listen()
    assert originals(generated)[0] is not before[0]


def test_an_error_in_a_kernel_is_the_users_and_closes_its_ranges(watched, generated):
    def broken(args):
        generated.cpp_fused_add_0(1)

    emitter = watched.install()
    with pytest.raises(TypeError):
        Graph(broken)([torch.ones(1)])
    assert all(one.closed for one in emitter.ranges)
    assert not watched.broken


def test_benchmarks_of_a_kernel_are_no_part_of_the_program(watched, generated):
    emitter = watched.install()
    generated.kernel.run(torch.ones(1), stream=0, benchmark_run=True)
    generated.kernel.run(torch.ones(1), stream=0)  # outside any region
    assert not emitter.named("triton_poi_fused_mul_1")


def test_fused_nodes_are_told_in_the_graphs_order():
    def node(name, stack="", **meta):
        return SimpleNamespace(target=name, meta={"stack_trace": stack, **meta})

    stack = 'File "/x/site.py", line 3, in call\n  File "/w/train.py", line 8, in forward\n    x'
    layers = {"1": ("L['self']", None), "2": ("L['self']._modules['blocks'].3.mlp", None)}
    found = provenance.fused_of(
        [
            node(
                "amax", stack, original_aten=torch.ops.aten._softmax.default, nn_module_stack=layers
            ),
            node("sub", stack, original_aten=torch.ops.aten._softmax.default),
            node(torch.ops.aten.add.Tensor, fwd_nn_module_stack={"1": ("L['self'].head", None)}),
        ]
    )
    assert found.ops == ["aten::_softmax", "aten::add.Tensor"]
    assert found.lines == [("/w/train.py", 8)]
    assert found.layers == ["blocks.3.mlp", "head"]


@pytest.fixture
def program(monkeypatch, tmp_path):
    """A module of the user's that is loaded."""
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "train.py"
    file.write_text("a = 1\nb = a + 1\nc = 3\n")
    module = ModuleType("train")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "train", module)
    return file


def kept(file, line):
    provenance._save("cabc", {"k": provenance.Fused(["aten::add"], [(str(file), line)], ["head"])})


def known():
    linecache.checkcache()
    return provenance.Provenance().of("/cache/ab/cabc.py")


def test_what_was_kept_is_read_again_and_damage_is_nothing(program, tmp_path):
    kept(program, 2)
    assert known() == {"k": provenance.Fused(["aten::add"], [(str(program), 2)], ["head"])}
    (tmp_path / "cache" / "inductor" / "cabc.json").write_text('{"k": {"ops": 3}}')
    assert known() == {}
    assert provenance.Provenance().of("/cache/ab/other.py") == {}


def test_a_line_that_was_edited_since_is_found_or_not_told(program, monkeypatch):
    kept(program, 2)
    program.write_text("# new\na = 1\nb = a + 1\nc = 3\n")
    assert known()["k"].lines == [(str(program), 3)]
    program.write_text("b = a + 1\nb = a + 1\n")
    os.utime(program, (1, 1))
    assert known()["k"].lines == [(str(program), 2)]
    program.write_text("b = 2 + a\n")
    assert known()["k"].lines == []
    assert known()["k"].ops == ["aten::add"]


def test_a_line_of_another_program_with_the_same_code_is_not_told(program, monkeypatch):
    kept(program, 2)
    monkeypatch.delitem(sys.modules, "train")
    assert known()["k"].lines == []
