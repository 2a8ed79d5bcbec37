"""The costs in a trace of torch.profiler are those of opscope's recorder, which sees one level of ops, and of
torch's own counter: for the ops of torch's database, and for tensors that are divided over ranks."""

from __future__ import annotations

import contextlib
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

#: Ops that need a GPU or a dtype that opscope has no name for, that are random, or that the recorder has no
#: cost for, while the trace has that of the ops inside.
NOT_COMPARED = (
    *("jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "chalf"),
    *("jiterator_binary_return_by_ref", "jiterator_2inputs_2outputs", "hash_tensor"),
    *("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "masked_select", "to_sparse"),
    *("sparse.sampled_addmm", "nn.functional.linear_cross_entropy"),
)
#: Ops that call matrix products in their kernels: a trace counts those, the recorder the op's own formula.
OTHER_FORMULA = (
    *("linalg.pinv", "pinverse", "matrix_exp", "nn.functional.bilinear", "torch._scaled_mm"),
    "torch._scaled_mm_v2",
)
#: In front of each op: a call that none of them makes.
MARK = ("aten::tril_indices", 17)


def mark():
    torch.tril_indices(3, MARK[1])


@cache
def programs():
    """(name, function) of one sample of each op of the database that runs here."""
    found = {}
    for op in database.op_db:
        if op.name in NOT_COMPARED or op.name in found or not op.dtypes:
            continue
        dtype = torch.float32 if torch.float32 in op.dtypes else sorted(op.dtypes, key=str)[0]
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            sample = next(iter(op.sample_inputs_func(op, "cpu", dtype, requires_grad=False)))

            def run(op=op, sample=sample):
                return op(sample.input, *sample.args, **sample.kwargs)

            run()
            found[op.name] = run
    return found


def costs(path):
    """Each program's FLOPs, matrix FLOPs and bytes."""
    ops = opscope.load(path).ops().sort("start")
    name = pl.col("op").cast(pl.String).str.starts_with(MARK[0])
    is_mark = name & pl.col("params").cast(pl.String).str.contains(str(MARK[1]))
    numbered = ops.with_columns((is_mark.cast(pl.Int64).cum_sum() - 1).alias("program"))
    rows = (
        numbered.filter(~is_mark & (pl.col("program") >= 0))
        .group_by("program")
        .agg(pl.col("flops", "matrix_flops", "bytes").sum())
        .rows()
    )
    names = list(programs())
    return {names[program]: sums for program, *sums in rows}


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
    compared = [name for name in programs() if name in live and name in traced]
    assert len(compared) > 400
    wrong = [name for name in compared if live[name][0] != traced[name][0]]
    assert [name for name in wrong if name not in OTHER_FORMULA] == []
    near = [
        name
        for name in compared
        if abs(live[name][2] - traced[name][2]) <= 16 + live[name][2] // 20
    ]
    # lists of tensors have no dtypes in this version's traces, so their bytes are not known
    assert len(near) > 0.9 * len(compared)


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
