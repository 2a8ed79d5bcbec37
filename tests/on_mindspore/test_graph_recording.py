"""MindSpore's own profiler beside the recorder, and the join of both: graph mode and PyNative mode."""

from __future__ import annotations

import os

import polars as pl
import pytest

pytest.importorskip("mindspore")
os.environ.setdefault("GLOG_v", "3")  # MindSpore's log: errors only

import mindspore as ms
import numpy as np

import opscope
from opscope.backends.mindspore_capture import MindSporeCapture
from opscope.core.capture import session
from opscope.core.recording_format import MINDSPORE
from opscope.profile import Profile
from opscope.readers.mindspore import cpu_files
from opscope.readers.recording.reader import collect
from tests.on_mindspore.graph_models import (
    LeNet,
    Transformer,
    made,
    multiply_adds,
    trained,
    weights,
)

STEPS = 3
CASES = [(LeNet, True), (LeNet, False), (Transformer, True), (Transformer, False)]
NAMES = [f"{kind.__name__}-{'graph' if graph else 'pynative'}" for kind, graph in CASES]
#: What gradients run that differentiates no operator: the first gradient, and sums of gradients.
OF_NO_OP = {"Ones", "OnesLike", "Add", "AddN", "AddExt", "ZerosLike"}


def record(folder, step, data, steps=STEPS):
    """Record steps beside MindSpore's profiler; return losses."""
    opscope.init()
    try:
        session.start(MindSporeCapture(folder))
        try:
            return trained(step, data, steps)
        finally:
            session.stop()
    finally:
        opscope.shutdown()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """``recorded(kind, graph)``: the profile, the folder of MindSpore's files, losses, weights; run once."""
    known = {}

    def run(kind, graph):
        if (kind, graph) not in known:
            folder = tmp_path_factory.mktemp("recording")
            step, net, data = made(kind, graph)
            first = trained(step, data, 1)
            losses = first + record(folder, step, data)
            files = next(folder.glob(f"part-*/{MINDSPORE}"))
            known[kind, graph] = Profile(collect(folder)), files, losses, weights(net)
        return known[kind, graph]

    yield run
    ms.set_context(mode=ms.PYNATIVE_MODE)


def told(ops, column):
    """The share of operators' time in which a column is known."""
    sure = pl.col(column).is_not_null() & ~pl.col(column).cast(pl.String).str.contains(r"\?")
    return ops.filter(sure)["self_time"].sum() / ops["self_time"].sum()


@pytest.mark.parametrize(("kind", "graph"), CASES, ids=NAMES)
def test_operators_have_shapes_dtypes_layers_and_directions(recorded, kind, graph):
    ops = recorded(kind, graph)[0].ops()
    assert told(ops, "inputs") >= 0.98
    assert told(ops, "dtypes") >= 0.95
    # by number: one operator that waits for a busy machine would weigh more than all others
    placed = ops.filter(~pl.col("op").cast(pl.String).is_in(OF_NO_OP))["layer"].is_not_null()
    assert placed.mean() >= 0.9
    assert set(ops["direction"].cast(pl.String)) == {"forward", "backward", "optimizer"}
    layers = set(ops["layer"].cast(pl.String).drop_nulls())
    wanted = {"LeNet.c1", "LeNet.f2"} if kind is LeNet else {"Transformer.blocks.1.up"}
    assert wanted <= layers


@pytest.mark.parametrize(("kind", "graph"), CASES, ids=NAMES)
def test_each_backward_operator_has_its_forward_operator(recorded, kind, graph):
    ops = recorded(kind, graph)[0].ops()
    backward = ops.filter(pl.col("direction") == "backward")
    alone = backward.filter(
        pl.col("forward_op_id").is_null() & ~pl.col("op").cast(pl.String).is_in(OF_NO_OP)
    )
    assert not alone.select("op", "params").rows()
    forward = ops.select(
        pl.col("op_id").alias("forward_op_id"),
        pl.col("op").cast(pl.String).alias("of"),
        pl.col("inputs").cast(pl.String).alias("had"),
        pl.col("start").alias("began"),
        pl.col("direction").cast(pl.String).alias("side"),
    )
    pairs = backward.join(forward, on="forward_op_id")
    # a graph may run the first gradient before the loss, which nothing in it waits for
    loss = pl.col("op").cast(pl.String).str.contains("CrossEntropy")
    assert pairs.filter(~loss).select((pl.col("began") < pl.col("start")).all()).item()
    assert set(pairs["side"]) == {"forward"}
    weight = pairs.filter(pl.col("op").cast(pl.String) == "Conv2DBackpropFilter")
    if kind is LeNet:  # the gradient of a weight is like the weight
        assert len(weight) == 2 * STEPS
        for made_, had in zip(weight["outputs"].cast(pl.String), weight["had"], strict=True):
            assert had.endswith(made_)
    product = pairs.filter(pl.col("op").cast(pl.String).str.ends_with("MatMul"))
    assert (product["op"].cast(pl.String) == product["of"]).all()
    for made_, had in zip(product["outputs"].cast(pl.String), product["had"], strict=True):
        assert made_ in had


def without_forward(profile):
    """The backward operators of a profile that have no forward operator and should."""
    ops = profile.ops().with_columns(pl.col("op").cast(pl.String))
    backward = ops.filter((pl.col("direction") == "backward") & ~pl.col("op").is_in(OF_NO_OP))
    assert len(backward)
    return backward.filter(pl.col("forward_op_id").is_null()).select("op", "params").rows()


def test_the_second_graph_of_a_model_in_a_process_is_described_as_the_first(tmp_path):
    told_of = []
    for turn, kind in enumerate((Transformer, LeNet, Transformer)):
        step, _, data = made(kind, True)
        trained(step, data, 1)
        record(tmp_path / str(turn), step, data)
        profile = Profile(collect(tmp_path / str(turn)))
        assert not without_forward(profile)
        ops = profile.ops()
        columns = ["op", "inputs", "outputs", "direction", "layer"]
        told_of.append(ops.group_by(columns).len().sort(columns, nulls_last=True))
    assert told_of[0].equals(told_of[2])


def test_pynative_mode_is_paired_after_a_graph_of_the_same_operators_was_recorded(tmp_path):
    for name, graph in (("graph", True), ("pynative", False)):
        step, _, data = made(Transformer, graph)
        trained(step, data, 1)
        record(tmp_path / name, step, data)
    assert not without_forward(Profile(collect(tmp_path / "pynative")))


def test_training_and_evaluation_in_one_capture_are_described_each_by_its_graph(tmp_path):
    step, net, data = made(Transformer, True)
    trained(step, data, 1)
    net.set_train(False)
    net(data[0])
    opscope.init()
    session.start(MindSporeCapture(tmp_path))
    trained(step, data, STEPS)
    for _ in range(2):
        net(data[0]).asnumpy()
    session.stop()
    opscope.shutdown()
    profile = Profile(collect(tmp_path))
    assert not without_forward(profile)
    ops = profile.ops()
    assert told(ops, "inputs") >= 0.98
    assert told(ops, "dtypes") >= 0.95
    products = ops.filter((pl.col("op") == "BatchMatMul") & (pl.col("direction") == "forward"))
    assert len(products) == 2 * 2 * (STEPS + 2)
    assert products["dtypes"].null_count() == 0


@pytest.mark.parametrize(("kind", "graph"), CASES, ids=NAMES)
def test_totals_are_those_of_mindspores_own_files(recorded, kind, graph):
    profile, files, *_ = recorded(kind, graph)
    ops = profile.ops().with_columns(pl.col("op").cast(pl.String))
    counted = ops.group_by("op").agg(pl.len(), pl.col("cpu_time").sum())
    mine = {op: (many, ns / 1e6) for op, many, ns in counted.rows()}
    kinds = cpu_files.kinds(files / "cpu_op_type_info_0.csv")
    assert kinds
    for op, (many, ms_) in kinds.items():
        assert mine[op] == (many, pytest.approx(ms_, rel=1e-5, abs=1e-6)), op
    totals, _ = cpu_files.totals(files / "cpu_op_detail_info_0.csv")
    ranges = profile.trace["ranges"].with_columns(pl.col("domain", "text").cast(pl.String))
    ran = ranges.filter(pl.col("domain") == "mindspore")
    by_node = ran.group_by(pl.col("text").str.extract(r"^([^(]*)", 1)).agg(
        pl.len(), (pl.col("end") - pl.col("start")).sum()
    )
    each = {name: (many, ns / 1e6) for name, many, ns in by_node.rows()}
    assert set(each) == set(totals)
    for name, (many, ms_) in totals.items():
        assert each[name] == (many, pytest.approx(ms_, rel=1e-5, abs=1e-6)), name


@pytest.mark.parametrize(("kind", "graph"), CASES, ids=NAMES)
def test_flops_of_convolutions_and_products_are_those_counted_by_hand(recorded, kind, graph):
    ops = recorded(kind, graph)[0].ops()
    found = ops.group_by(pl.col("direction").cast(pl.String)).agg(pl.col("matrix_flops").sum())
    flops = dict(found.rows())
    forward, backward = multiply_adds(kind)
    assert flops["forward"] == 2 * forward * STEPS
    assert flops["backward"] == 2 * backward * STEPS


@pytest.mark.parametrize(("kind", "graph"), CASES, ids=NAMES)
def test_training_gives_the_same_bits_with_and_without(recorded, kind, graph):
    *_, losses, after = recorded(kind, graph)
    step, net, data = made(kind, graph)
    assert trained(step, data, STEPS + 1) == losses
    assert weights(net) == after


def test_operators_lie_in_the_run_of_their_graph(recorded):
    profile, *_ = recorded(LeNet, True)
    ranges = profile.trace["ranges"].with_columns(pl.col("domain", "category").cast(pl.String))
    runs = ranges.filter(pl.col("category") == "graph").sort("start")
    ran = ranges.filter(pl.col("domain") == "mindspore")
    assert len(runs) == STEPS
    inside = ran.sort("start").join_asof(
        runs.select("start", pl.col("end").alias("until"), pl.col("thread").alias("on")),
        on="start",
    )
    assert (inside["end"] <= inside["until"]).all()
    assert (inside["thread"] == inside["on"]).all()


def test_nothing_is_written_to_stdout(tmp_path, capfd):
    step, _, data = made(LeNet, True)
    capfd.readouterr()
    record(tmp_path, step, data, 1)
    assert capfd.readouterr().out == ""


def test_the_programs_own_profiler_takes_over(tmp_path):
    from mindspore import profiler

    step, _, data = made(LeNet, True)
    trained(step, data, 1)
    opscope.init()
    session.start(MindSporeCapture(tmp_path / "ours"))
    trained(step, data, 1)
    theirs = profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path / "theirs")),
    )
    theirs.start()
    trained(step, data, 2)
    theirs.stop()
    session.stop()
    opscope.shutdown()
    trace = collect(tmp_path / "ours")
    domain = trace["ranges"]["domain"].cast(pl.String)
    name = trace["ranges"]["text"].cast(pl.String)
    mine = name.filter((domain == "mindspore") & name.str.contains("c1-Conv2d/Conv2D-op"))
    assert len(mine) == 1
    assert trace["windows"]["ended"].to_list() == ["the program's own profiler began"]
    (own,) = (tmp_path / "theirs").glob("*_ascend_ms")
    found = cpu_files.tables_of(own)["ranges"]["text"].cast(pl.String)
    assert found.str.contains("c1-Conv2d/Conv2D-op").sum() == 2


def test_an_operators_error_still_reaches_the_program(tmp_path):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    table, far = ms.Tensor(np.ones((4, 4), np.float32)), ms.Tensor(np.array([99], np.int32))
    session.start(MindSporeCapture(tmp_path))
    missing = ms.ops.gather(table, far, 0)
    session.stop()  # not by opscope's adapter: nothing has waited for the operator
    with pytest.raises(RuntimeError, match="99"):
        missing.asnumpy()
