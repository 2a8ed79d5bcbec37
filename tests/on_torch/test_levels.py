"""The costs in a trace of torch.profiler are those of opscope's recorder, which sees one level of ops, and of
torch's own counter: for the ops of torch's database, and for tensors that are divided over ranks."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import types
import unittest
import warnings
from functools import cache

import polars as pl
import pytest

import opscope

torch = pytest.importorskip("torch")

if "expecttest" not in sys.modules:
    # torch's test helpers derive a class from its TestCase; nothing here runs that class
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase
    stub.assert_expected_inline = None
    sys.modules["expecttest"] = stub
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.testing._internal import common_methods_invocations as database  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from opscope.core.dialects.aten_schema import is_composite  # noqa: E402

#: Ops that need a GPU or a dtype that opscope has no name for, or that are random.
NOT_COMPARED = (
    *("jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "chalf"),
    *("jiterator_binary_return_by_ref", "jiterator_2inputs_2outputs", "hash_tensor"),
    "nn.functional.linear_cross_entropy",
)
#: What a trace does not tell, so that its figures differ from the recorder's, by what is compared.
LACKS = {
    "flops": {
        # a text says how: gelu's tanh form, the mean of segments
        *("nn.functional.gelu", "_segment_reduce", "segment_reduce"),
        "nn.functional.max_pool1d",  # composite, with a kernel of its own: no dispatch mode sees it
    },
    "bytes": {
        # by-products that differ from kernel to kernel, which only results show
        *("nn.functional.embedding_bag", "nn.functional.logsigmoid", "linalg.lstsq"),
        *("nn.functional.multilabel_soft_margin_loss", "nn.functional.max_pool1d"),
    },
}
#: A tensor without dimensions and a number of the program look the same (f64, i64, bool): bytes of both.
NUMBER = 16
SAMPLES = 2
#: In front of each op: a call that none of them makes.
MARK = ("aten::tril_indices", 17)


def mark():
    torch.tril_indices(3, MARK[1])


@pytest.fixture(scope="module", autouse=True)
def _no_optimizer_stays():
    """Steps are counted by the live optimizers of the process: those of the programs end with this file."""
    yield
    programs.cache_clear()


@cache
def programs():
    """{name: function} of some samples of each op of the database that run here, and of OWN."""
    found = {}
    for op in database.op_db:
        if op.name in NOT_COMPARED or not op.dtypes:
            continue
        dtype = torch.float32 if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[0]
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            samples = op.sample_inputs_func(op, "cpu", dtype, requires_grad=False)
            for number, sample in enumerate(itertools.islice(samples, SAMPLES)):

                def run(op=op, sample=sample):
                    return op(sample.input, *sample.args, **sample.kwargs)

                run()
                found[f"{op.name} {op.variant_test_name}{number}"] = run
    return found | {f"{name} own": run for name, run in own_programs().items()}


def own_programs():
    """Programs of ordinary sizes that the database has not: backward passes, steps of optimizers."""
    x, matrix = torch.rand(16, 12), torch.rand(12, 12) + 12 * torch.eye(12)
    image = torch.rand(2, 4, 9, 9)
    lists = [[torch.rand(10, 10) for _ in range(4)] for _ in range(2)]
    layers = {
        "linear": (torch.nn.Linear(12, 8), x),
        "conv": (torch.nn.Conv2d(4, 8, 3, groups=2, stride=2), image),
        "transposed": (torch.nn.ConvTranspose2d(4, 8, 3, 2), image),
        "batch norm": (torch.nn.BatchNorm2d(4), image),
        "group norm": (torch.nn.GroupNorm(2, 4), image),
        "rms norm": (torch.nn.RMSNorm(9), image),
        "prelu": (torch.nn.PReLU(), x),
        "unfold": (torch.nn.Unfold(3), image),
        "lstm cell": (torch.nn.LSTMCell(12, 8), x),
        "encoder": (torch.nn.TransformerEncoderLayer(12, 4, 8, 0.0), x),
    }
    found = {}
    for name, (layer, given) in layers.items():

        def forward_backward(layer=layer, given=given):
            out = layer(given.clone().requires_grad_())
            (out[0] if isinstance(out, tuple) else out).sum().backward()

        found[name] = forward_backward
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"):
        weights = [torch.rand(8, 8).requires_grad_() for _ in range(2)]
        optimizer = getattr(torch.optim, name)(weights, foreach=False)

        def step(optimizer=optimizer, weights=weights):
            for weight in weights:
                weight.grad = torch.ones_like(weight)
            optimizer.step()

        found[name] = step
    for name in ("add", "mul", "sqrt", "zero_", "addcmul", "norm"):
        count = {"sqrt": 1, "zero_": 1, "norm": 1, "addcmul": 3}.get(name, 2)
        run = getattr(torch, f"_foreach_{name}")
        found[f"foreach {name}"] = lambda run=run, count=count: run(*(lists * 2)[:count])
    return found | {
        "zeros": lambda: (torch.zeros(9, 9), torch.full((9, 9), 2.0), torch.randn(9, 9)),
        "pinv": lambda: torch.linalg.pinv(x, rcond=1e-3),
        "matrix_exp": lambda: torch.matrix_exp(matrix / 100),
        "eigvalsh": lambda: torch.linalg.eigvalsh(matrix),
        "slogdet": lambda: torch.linalg.slogdet(matrix),
        "addbmm": lambda: torch.addbmm(torch.rand(5, 7), torch.rand(3, 5, 6), torch.rand(3, 6, 7)),
        "cross attention": lambda: torch.nn.functional.scaled_dot_product_attention(
            torch.rand(2, 3, 16, 8), torch.rand(2, 3, 9, 8), torch.rand(2, 3, 9, 8)
        ),
        "abs of complex": lambda: torch.complex(x, x).abs(),
        "int8": lambda: torch._int_mm(*[torch.ones(32, 32, dtype=torch.int8)] * 2),
        "number first": lambda: (1 - x, 1 / x, 2**x, x.half() * 2, x + 1.5, x.bfloat16() + x),
        "out": lambda: torch.add(x, x, out=torch.empty(16, 12)),
        "roll": lambda: x.roll((3, 1), (0, 1)),
        "same": lambda: (x.type_as(x), x.float(), x.contiguous(), x.to_dense()),
        "no autocast": lambda: torch.ops.aten._autocast_to_full_precision(x, False, False),
        "scatter": lambda: x.scatter(0, torch.zeros(4, 12, dtype=torch.int64), x, reduce="add"),
    }


def costs(path):
    """Each program's FLOPs, matrix FLOPs, bytes, and whether the FLOPs and the bytes of all its ops are known."""
    profile = opscope.load(path)
    ops = profile.ops().sort("start")
    name = pl.col("op").cast(pl.String).str.starts_with(MARK[0])
    is_mark = name & pl.col("params").cast(pl.String).str.contains(str(MARK[1]))
    numbered = ops.with_columns((is_mark.cast(pl.Int64).cum_sum() - 1).alias("program"))
    numbered = numbered.filter(~is_mark & (pl.col("program") >= 0))
    lacking = profile.missing_costs().select("op", "lacks", "op_type")
    without = lacking.filter(pl.col("lacks").str.contains("FLOPs"))["op"].unique().to_list()
    # what has no bytes is a list of tensors without element types, or a size that is data
    names = pl.col("op").cast(pl.String)
    sizeless = pl.col("flops").is_not_null() & pl.col("bytes").is_null()
    of = numbered.group_by("program").agg(
        pl.col("flops", "matrix_flops", "bytes").sum(),
        (~names.is_in(without)).all().alias("has_flops"),
        (~sizeless).all().alias("has_bytes"),
    )
    known = list(programs())
    return {known[program]: row for program, *row in of.rows()}


def both(folder, run):
    """Record ``run`` with opscope and with torch.profiler; return the paths."""
    opscope.init(frameworks="torch")
    try:
        with opscope.capture(folder / "live.opscope", force=True):
            run()
    finally:
        opscope.shutdown()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as traced:
        run()
    traced.export_chrome_trace(str(folder / "trace.json"))
    return folder / "live.opscope", folder / "trace.json"


@pytest.mark.filterwarnings("ignore")
def test_a_traces_costs_are_the_recorders(tmp_path):
    def run():
        for program in programs().values():
            mark()
            program()

    live, traced = map(costs, both(tmp_path, run))
    names = [name for name in programs() if name in live and name in traced]
    ops = {name: name.split()[0] for name in names}
    computed = [name for name in names if traced[name][3] and ops[name] not in LACKS["flops"]]
    assert [name for name in computed if live[name][:2] != traced[name][:2]] == []
    moved = [name for name in computed if traced[name][4] and ops[name] not in LACKS["bytes"]]
    wrong = [name for name in moved if abs(live[name][2] - traced[name][2]) > NUMBER]
    assert wrong == []
    assert sum(live[name][2] == traced[name][2] for name in moved) > 0.95 * len(moved)
    assert len({ops[name] for name in computed}) > 450
    assert len({ops[name] for name in moved}) > 430


def test_a_traces_products_are_those_of_torchs_counter(tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 6 * 6, 16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 4),
    )
    x = torch.randn(2, 3, 8, 8)

    def run():
        (model(x).sum() + torch.randn(4, 5, 6).bmm(torch.randn(4, 6, 7)).mean()).backward()

    live, traced = (opscope.load(path) for path in both(tmp_path, run))
    with FlopCounterMode(display=False) as counter:
        run()
    assert live.ops()["matrix_flops"].sum() == counter.get_total_flops()
    assert traced.ops()["matrix_flops"].sum() == counter.get_total_flops()
    lacking = traced.missing_costs().filter(pl.col("lacks").str.contains("FLOPs"))["op"].to_list()
    assert [name for name in lacking if "Backward" not in name and "autograd" not in name] == []


def test_a_batch_that_vmap_runs_counts_with_all_its_rows(tmp_path):
    """Its ops stand twice in a trace: with the sizes of a row, and inside with those of all."""
    vmap, attention = torch.vmap, torch.nn.functional.scaled_dot_product_attention
    batch, other = torch.rand(4, 8, 16), torch.rand(4, 16, 3)
    heads, rows = torch.rand(3, 2, 4, 8, 16), torch.rand(16, 6)

    def run():
        vmap(torch.mm)(batch, other)
        vmap(torch.add)(batch, batch)
        vmap(torch.nn.functional.linear, in_dims=(0, None, None))(batch, rows.T, rows[0])
        vmap(attention)(heads, heads, heads)
        torch.func.jvp(lambda weights: batch[0] @ weights, (rows,), (rows,))

    live, traced = (opscope.load(path).ops() for path in both(tmp_path, run))
    assert live["matrix_flops"].sum() == 2 * (4 * 8 * 16 * (3 + 6) + 3 * 2 * 4 * 8 * 8 * 32) + (
        3 * 2 * 8 * 16 * 6
    )
    assert (
        traced["flops", "matrix_flops"].sum().rows() == live["flops", "matrix_flops"].sum().rows()
    )


def test_the_composite_ops_are_those_that_torch_decomposes():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name, composite in (("linear", True), ("layer_norm", True), ("add", False), ("sum", False)):
        assert is_composite(f"aten::{name}") is composite
        full = f"aten::{name}" if composite else f"aten::{name}.out"
        assert has(full, "CompositeImplicitAutograd") is composite


#: Two ranks in one process: nothing is sent, so a rank's own shapes and work are all there is.
DIVIDED = """
import torch, torch.distributed as dist, opscope, sys
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = init_device_mesh("cpu", (2,))
weight = distribute_tensor(torch.randn(8, 6), mesh, [Shard(1)])
parameters = [weight.clone(), weight.clone()]
from torch.distributed.tensor import Replicate
x = distribute_tensor(torch.randn(4, 8), mesh, [Replicate()])
def run():
    x @ weight
    torch._foreach_add_(parameters, 1.0)
if sys.argv[2] == "live":
    opscope.init(frameworks="torch")
    with opscope.capture(sys.argv[1], force=True): run()
    opscope.shutdown()
else:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as traced: run()
    traced.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.parametrize("ops", ["native", "dispatch", "trace"])
def test_a_divided_tensors_work_is_the_ranks_own(tmp_path, monkeypatch, ops):
    program, path = (
        tmp_path / "divided.py",
        tmp_path / ("d.json" if ops == "trace" else "d.opscope"),
    )
    program.write_text(DIVIDED)
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", "native" if ops == "trace" else ops)
    how = "trace" if ops == "trace" else "live"
    ran = subprocess.run(
        [sys.executable, str(program), str(path), how], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    rows = opscope.load(path).ops().with_columns(pl.col("op", "inputs").cast(pl.String))
    counted = rows.filter("canonical")
    products = counted.filter(pl.col("op") == "aten::mm")
    assert products.select("inputs", "matrix_flops").rows() == [
        ("f32[4,8], f32[8,3]", 2 * 4 * 8 * 3)
    ]
    assert rows["matrix_flops"].sum() == 2 * 4 * 8 * 3
    assert "f32[4,8], f32[8,6]" in rows["inputs"].to_list()  # the mesh's shapes are beside
    if ops != "trace":  # the list's sizes are not in this version's traces
        added = counted.filter(pl.col("op").str.starts_with("aten::_foreach_add_"))
        assert added.select("flops", "bytes").rows() == [(2 * 8 * 3, 2 * 2 * 4 * 8 * 3)]
