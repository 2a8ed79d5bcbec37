"""Costs on real Kineto traces: agreement with TraceLens's figures op by op, and how much is covered."""

from __future__ import annotations

import ast
import csv
import re
from functools import cache

import polars as pl
import pytest

from opscope import profile
from opscope.core import perf
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.roofline.efficiency import group_efficiency, op_efficiency
from opscope.core.perf.devices.identify import find
from opscope.core.rangetext import parse
from opscope.core.schema import OpCall, TensorSpec

DTYPES = {
    "c10::BFloat16": "bf16",
    "float": "f32",
    "double": "f64",
    "long int": "i64",
    "bool": "bool",
}
MIB = 2**20
QWEN = "qwen1.5_0.5b_h100.json.gz"


@cache
def load(folder, name):
    return profile.load(folder / "kineto" / name)


def rows_of(shared, table):
    """(call, TraceLens's row) for every row of one of its tables; the CSV's text is literals only."""
    with (shared / "kineto" / "qwen_tracelens" / f"{table}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            sizes = ast.literal_eval(row["Input Dims_first"])
            kinds = ast.literal_eval(row["Input type_first"])
            values = ast.literal_eval(row["Concrete Inputs_first"])
            inputs = tuple(
                TensorSpec(DTYPES[kind], tuple(size))
                for size, kind in zip(sizes, kinds, strict=True)
                if kind in DTYPES
            )
            yield row["name"], inputs, values, row


def cost_of(name, inputs, params=()):
    found, why = perf.cost(OpCall(name, inputs, None, tuple(params)))
    assert found is not None, why
    return found


def gflops(row):
    return round(float(row["GFLOPS_first"]) * 1e9)


def data_moved(row):
    """Bytes: the column's MB are 2^20."""
    return round(float(row["Data Moved (MB)_first"]) * MIB)


def test_gemm(shared):
    """Equal in bytes and FLOPs, but for addmm: TraceLens adds M·N for the bias, as if each result took
    an addition of its own. The bias is where the accumulator starts: torch.utils.flop_counter and the
    definition of MFU count 2·M·N·K, and so do we."""
    checked = 0
    for name, inputs, _, row in rows_of(shared, "GEMM"):
        found = cost_of(name, inputs)
        m, n = int(row["param: M"]), int(row["param: N"])
        bias = m * n if name == "aten::addmm" else 0
        assert found.matrix_flops + bias == gflops(row), row["Input Dims_first"]
        assert found.bytes == data_moved(row)
        checked += 1
    assert checked == 5


def test_attention(shared):
    """Causal: TraceLens takes half of the square; the mask's triangle has N·(N + 1)/2 pairs, N/2 more.
    The full square is what torch.utils.flop_counter counts. Bytes: TraceLens counts q, k, v and the
    result; so do we, and the logsumexp that flash attention also writes, an f32 for each row of q."""
    for name, inputs, values, row in rows_of(shared, "SDPA_fwd"):
        assert values[4] == "True"
        found = cost_of(name, inputs, [("is_causal", True)])
        batch, heads, tokens, dim = inputs[0].shape
        assert found.matrix_flops == 2 * gflops(row)
        live = found.matrix_flops - found.masked_flops
        assert live - gflops(row) == 4 * dim * batch * heads * tokens // 2
        assert found.bytes == data_moved(row) + 4 * batch * heads * tokens


def test_binary(shared):
    """Equal: one FLOP an element, each operand and the result once."""
    checked = 0
    for name, inputs, _, row in rows_of(shared, "BinaryElementwise"):
        found = cost_of(name, inputs, [("alpha", 1)] if "add" in name else [])
        assert found.vector_flops == gflops(row), row["Input Dims_first"]
        # TraceLens has the double of a wrapped number in the result of a float: ours is f32, as torch's
        assert found.bytes == pytest.approx(data_moved(row), abs=8), row["Input Dims_first"]
        checked += 1
    assert checked == 9


def test_unary(shared):
    """Bytes equal. FLOPs: TraceLens counts one an element whatever the function, copies and casts
    included. A copy computes nothing (0); silu is negate, exp, add, divide, multiply (5)."""
    ours = {"aten::copy_": 0, "aten::silu": 5}
    seen = set()
    for name, inputs, _, row in rows_of(shared, "UnaryElementwise"):
        found = cost_of(name, inputs)
        assert found.vector_flops == ours.get(name, 1) * gflops(row), name
        assert found.bytes == data_moved(row), (name, row["Input Dims_first"])
        seen.add(name)
    assert {"aten::copy_", "aten::pow", "aten::silu", "aten::neg", "aten::rsqrt"} <= seen


def test_reduce(shared):
    """FLOPs equal: a mean of n takes n − 1 additions and a division. Bytes: TraceLens takes one output
    element although the call reduces dim −1 alone and keeps 8944 of them."""
    for name, inputs, values, row in rows_of(shared, "Reduce_fwd"):
        assert values[1] == "[-1]"
        found = cost_of(name, inputs, [("dim", (-1,)), ("keepdim", True)])
        assert found.flops == gflops(row)
        outputs = inputs[0].numel // inputs[0].shape[-1]
        assert found.bytes - data_moved(row) == 4 * (outputs - int(row["param: num_output_elems"]))


#: File and the least share of device time (of what has a launch record) with known FLOPs.
SHARES = {
    QWEN: 0.98,
    "timesformer_h100.json.gz": 0.98,
    "resnet50_nw0_step_span1.pt.trace.json.gz": 0.98,
    "resnet50_nw4_step_span1.pt.trace.json.gz": 0.98,
    "ddp_rank3of8_a100_stacks.json.gz": 0.98,
}


@pytest.mark.parametrize("name", SHARES)
def test_coverage(shared, name):
    row = load(shared, name).summary().row(0, named=True)
    assert row["flops_share"] >= SHARES[name]
    assert 0 < row["launched_share"] <= 1


#: Least share of launched device time with known bytes. Not known: lists of tensors without sizes (ddp),
#: compiled regions, collectives whose ranks are not recorded (vision_transformer, sampled).
BYTES = {
    QWEN: 0.99,
    "timesformer_h100.json.gz": 0.99,
    "resnet50_nw0_step_span1.pt.trace.json.gz": 0.99,
    "resnet50_nw4_step_span1.pt.trace.json.gz": 0.99,
    "ddp_rank3of8_a100_stacks.json.gz": 0.96,
    "vision_transformer_rank0.json.gz": 0.23,
    "sampled_rank0.json.gz": 0.50,
    "sampled_rank1.json.gz": 0.56,
}


@pytest.mark.parametrize("name", BYTES)
def test_what_is_not_covered_adds_up_to_the_rest(shared, name):
    """Both shares and the list of what they leave out are one sum, each entry with its reason."""
    loaded = load(shared, name)
    row = loaded.summary().row(0, named=True)
    missing = loaded.missing_costs()
    assert row["bytes_share"] >= BYTES[name]
    for kind, share in (("FLOPs", row["flops_share"]), ("bytes", row["bytes_share"])):
        lacking = missing.filter(
            pl.col("lacks").str.contains(kind) & (pl.col("why") != "no launch record")
        )
        assert lacking["share"].sum() == pytest.approx(1 - share, abs=1e-9)
    assert missing["why"].null_count() == 0
    assert missing["time"].is_sorted(descending=True)


def test_a_join_s_bytes_are_those_of_its_kernel_s_elements(shared):
    """qwen, timesformer: every part read and the whole written, two bytes an element (four once)."""
    for name, wide in ((QWEN, 2 * 559 * 32), ("timesformer_h100.json.gz", 0)):
        joins = load(shared, name).kernels().filter(pl.col("op").cast(pl.String) == "aten::cat")
        assert len(joins)
        for inputs, moved in joins.select("inputs", "bytes").rows():
            elements = sum(part.numel for part in parse(f"cat({inputs})").input_leaves())
            assert moved == 2 * elements * (4 if elements == wide else 2)


def test_a_bias_s_gradient_is_a_sum_over_the_batch(shared):
    """ddp: the engine sums [1024, n] to the bias's [n]; what it sums elsewhere stays unknown."""
    ops = load(shared, "ddp_rank3of8_a100_stacks.json.gz").ops()
    sums = ops.filter((pl.col("op").cast(pl.String) == "aten::sum") & pl.col("canonical"))
    backward = pl.col("direction").cast(pl.String) == "backward"
    known = sums.filter(backward & pl.col("flops").is_not_null())
    known = known.select("inputs", "flops", "bytes").unique()
    wide = [
        int(found.group(1))
        for inputs in known["inputs"]
        if (found := re.fullmatch(r"f32\[1024,(\d+)\]", inputs))
    ]
    assert len(wide) > 10
    for inputs, flops, moved in known.rows():
        found = re.fullmatch(r"f32\[1024,(\d+)\]", inputs)
        if found:
            n = int(found.group(1))
            assert (flops, moved) == (1023 * n, 4 * 1025 * n)


def test_what_is_not_covered_is_named(shared):
    """vision_transformer: compiled regions, a fused optimizer without shapes, sums without their dim,
    and every kernel that no op launched under its own name, each with its share."""
    loaded = load(shared, "vision_transformer_rank0.json.gz")
    missing = loaded.missing_costs().filter(pl.col("lacks").str.contains("FLOPs"))
    without = loaded.kernels().filter(pl.col("op_id").is_null())
    listed = missing.filter(pl.col("why") == "no launch record")
    assert set(listed["op"]) == set(without["name"].cast(pl.String).unique())
    assert listed["time"].sum() == without["duration"].sum()
    missing = missing.filter(pl.col("why") != "no launch record")
    shares = dict(missing.group_by("op").agg(pl.col("share").sum()).iter_rows())
    assert shares["CompiledFunctionBackward"] == pytest.approx(0.2485, abs=1e-3)
    assert shares["CompiledFunction"] == pytest.approx(0.0209, abs=1e-3)
    assert shares["Optimizer.step#FusedAdam.step"] == pytest.approx(0.0821, abs=1e-3)
    why = missing.filter(pl.col("op") == "CompiledFunction")["why"].to_list()
    assert any("the trace records the sizes of its inputs" in one for one in why)
    assert missing["share"].sum() < 0.40


def test_backward_of_a_trace_without_parameters(shared):
    """ResNet-50, batch 32, six steps: a weight gradient has its forward's multiply-adds, and a forward
    whose stride was not recorded has its result's size from the gradient."""
    ops = load(shared, "resnet50_nw0_step_span1.pt.trace.json.gz").ops()
    totals = dict(
        ops.group_by(pl.col("op").cast(pl.String)).agg(pl.col("matrix_flops").sum()).iter_rows()
    )
    forward = totals["aten::cudnn_convolution"]
    assert totals["aten::cudnn_convolution_backward_weight"] == forward
    # the images need no gradient: the first convolution has no data gradient
    first = 2 * 32 * 112 * 112 * 64 * 3 * 7 * 7
    assert forward - totals["aten::cudnn_convolution_backward_input"] == 6 * first
    # 4.09 G multiply-adds an image (K. He et al., "Deep Residual Learning", 2015: 3.8 with shortcuts
    # counted apart; torchvision: 4.09), of which 2.05 M are the classifier's
    assert forward / (6 * 32) / 2 == pytest.approx(4.09e9, rel=0.005)


def test_why_tensor_cores_were_not_used(shared):
    """TF32 is on in this A100 run: products of odd sizes are left to other kernels, and the reason says
    which size. A kernel that used them settles that its op was ready."""
    kernels = (
        load(shared, "ddp_rank3of8_a100_stacks.json.gz").kernels().filter(pl.col("tc_eligible"))
    )
    used = kernels.filter(pl.col("tensor_core"))
    assert len(used) == 1638
    assert used["tc_ready"].all()
    assert used["tc_reason"].null_count() == len(used)
    plain = kernels.filter(pl.col("tc_reason").is_not_null())
    reasons = set(plain["tc_reason"].cast(pl.String))
    assert {"K = 30 is not a multiple of 4", "M = 647 is not a multiple of 4"} <= reasons
    assert not plain["tensor_core"].any()


def test_groups_of_ops(shared):
    """Sums of a group are those of its ops, whatever it is grouped by; what is lost ranks first."""
    loaded = load(shared, QWEN)
    device, _ = find("NVIDIA H100 80GB HBM3")
    found = op_efficiency(
        loaded.of(op_index), loaded.of(op_rows), loaded.kernels(categories=True), device
    )
    by_name, by_direction = (
        group_efficiency(found, "op"),
        group_efficiency(found, "direction", "step"),
    )
    for table in (by_name, by_direction):
        assert table["duration"].sum() == found["duration"].sum()
        assert table["matrix_flops"].sum() == found["matrix_flops"].sum()
        assert table["calls"].sum() == len(found)
    products = by_name.filter(pl.col("op").cast(pl.String) == "aten::mm").row(0, named=True)
    assert products["bound"] == "tensor"
    assert 0.5 < products["efficiency"] < 0.8  # TraceLens: 593 to 626 of 989 TFLOP/s
    sums = by_name.filter(pl.col("op").cast(pl.String) == "aten::add").row(0, named=True)
    assert sums["bound"] == "memory"
