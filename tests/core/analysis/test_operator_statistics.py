"""MindSpore's statistics in every framework: types, operators, kernels, a search, and op_analyse's JSON."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given

from opscope.profile import Profile
from tests.core.analysis.made_nests import nests

PLACE = {"process": 0, "thread": 1, "kind": "pushpop"}


def node(name: str, start: int, end: int) -> dict:
    return {**PLACE, "domain": "mindspore", "text": name, "start": start, "end": end}


def op(text: str, start: int, end: int, **more) -> dict:
    return {**PLACE, "domain": "opscope.torch", "category": "forward", "text": text, "start": start,
            "end": end, **more}  # fmt: skip


def launched(*kernels: tuple[int, int, str, int]) -> dict[str, list[dict]]:
    """Tables of kernels: when each was launched, on which device, its name, and how long it ran."""
    calls = [
        {
            "process": 0,
            "thread": 1,
            "start": at,
            "end": at + 1,
            "name": "cudaLaunchKernel",
            "correlation": n,
        }
        for n, (at, *_) in enumerate(kernels)
    ]
    ran = [
        {"process": 0, "device": device, "stream": 7, "start": 5000 * n, "end": 5000 * n + lasts,
         "name": name, "correlation": n}
        for n, (_, device, name, lasts) in enumerate(kernels)
    ]  # fmt: skip
    return {"calls": calls, "kernels": ran}


NET = "Default/network-WithLossCell/_backbone-Net/"
GRAPH = [
    node(f"{NET}c1-Conv2d/Conv2D-op0(f32[8,1,32,32], f32[6,1,5,5])", 0, 100_000),
    node(f"{NET}f-Dense/MatMul-op0(f32[8,4704], f32[10,4704])", 100_000, 130_000),
    node(
        f"Gradients/{NET}f-Dense/Grad_MatMul/MatMul-op0(f32[8,10], f32[10,4704])", 130_000, 150_000
    ),
    node(
        f"Gradients/{NET}f-Dense/Grad_MatMul/MatMul-op1(f32[8,10], f32[8,4704])", 150_000, 160_000
    ),
]


def test_a_type_is_an_op_and_an_operator_is_an_op_at_one_place(trace_of):
    profile = Profile(trace_of(ranges=GRAPH))
    types = {row["op"]: row for row in profile.operator_statistics().to_dicts()}
    assert {op: row["total"] for op, row in types.items()} == {"Conv2D": 100_000, "MatMul": 60_000}
    matmul = types["MatMul"]
    assert (matmul["calls"], matmul["mean"], matmul["share"], matmul["operators"]) == (
        3,
        20_000,
        0.375,
        3,
    )
    operators = profile.operator_statistics("operator")
    assert operators["total"].to_list() == [100_000, 30_000, 20_000, 10_000]
    assert operators["operator"][1] == f"{NET}f-Dense/MatMul-op0"
    assert operators["layer"].to_list() == ["Net.c1", "Net.f", "Net.f", "Net.f"]
    with pytest.raises(ValueError, match="type, operator"):
        profile.operator_statistics("kind")


def test_a_search_finds_ops_layers_and_nodes_in_any_case(trace_of):
    profile = Profile(trace_of(ranges=GRAPH))
    assert profile.operator_statistics(search="CONV")["op"].to_list() == ["Conv2D"]
    assert len(profile.operator_statistics("operator", search="net.f")) == 3
    assert len(profile.operator_statistics("operator", search="matmul-op1")) == 1
    found = profile.operator_statistics(search="conv")
    assert found["share"].to_list() == [100 / 160]  # of all, not of what was found
    assert profile.operator_statistics(search="no such op").is_empty()
    assert profile.operator_statistics(search="(").is_empty()  # no pattern, a text


def test_kernels_are_listed_by_the_op_that_launched_them(trace_of):
    ranges = [op("aten::mm()", 0, 10), op("aten::add()", 20, 30)]
    tables = launched((1, 0, "k", 5), (2, 0, "k", 7), (21, 0, "k", 9), (90, 0, "stray", 3))
    profile = Profile(trace_of(ranges=ranges, **tables))
    frame = profile.kernel_activities()
    assert frame.select("name", "op", "calls", "total", "mean", "max", "min").rows() == [
        ("k", "aten::mm", 2, 12, 6.0, 7, 5),
        ("k", "aten::add", 1, 9, 9.0, 9, 9),
        ("stray", None, 1, 3, 3.0, 3, 3),
    ]
    assert frame["share"].sum() == 1
    assert profile.kernel_activities(search="MM")["op"].to_list() == ["aten::mm"]


def test_op_analyse_has_mindspores_shape(trace_of):
    found = json.loads(Profile(trace_of(ranges=GRAPH)).op_analyse(["Conv2D", "MatMul"]))
    assert list(found) == ["Conv2D", "MatMul", "device_id"]
    assert found["device_id"] == 0
    assert found["Conv2D"] == [
        {
            "op_side": "cpu",
            "input_shape": "input_1:[8, 1, 32, 32],input_2:[6, 1, 5, 5]",
            "op_occurrences": 1,
            "op_total_time(us)": 100.0,
            "op_avg_time(us)": 100.0,
        }
    ]
    assert [one["op_total_time(us)"] for one in found["MatMul"]] == [30.0, 20.0, 10.0]


def test_op_analyse_takes_the_name_of_a_node(trace_of):
    profile = Profile(trace_of(ranges=GRAPH))
    (found,) = json.loads(profile.op_analyse("MatMul-op1"))["MatMul-op1"]
    assert found["op_total_time(us)"] == 10.0
    assert len(json.loads(profile.op_analyse("MatMul-op0"))["MatMul-op0"]) == 2


def test_op_analyse_takes_the_time_of_one_device(trace_of):
    ranges = [
        op("aten::linear(f32[2,3], f32[4,3], _) {bias=2}", 0, 90_000),
        op("aten::mm(f32[2,3], f32[3,4])", 10_000, 50_000),
        op("aten::linear(f32[2,3], f32[4,3], _) {bias=2}", 100_000, 200_000),
        op("aten::mm(f32[2,3], f32[3,4])", 110_000, 150_000),
        op("aten::linear(f32[2,3], f32[4,3], _) {bias=2}", 300_000, 302_000),
    ]
    tables = launched((12_000, 0, "k", 4000), (60_000, 0, "k", 1000), (112_000, 1, "k", 7000))
    profile = Profile(trace_of(ranges=ranges, **tables))
    first, other = (
        json.loads(profile.op_analyse("aten::linear", n))["aten::linear"] for n in (0, 1)
    )
    by_side = {one["op_side"]: one for one in first}
    assert by_side["gpu"]["op_total_time(us)"] == 5.0  # with the product inside it
    assert by_side["gpu"]["input_shape"] == "input_1:[2, 3],input_2:[4, 3],input_3:NoShape"
    assert by_side["cpu"]["op_total_time(us)"] == 2.0  # it launched nothing, on any device
    assert {one["op_side"]: one["op_total_time(us)"] for one in other} == {"gpu": 7.0, "cpu": 2.0}
    with pytest.raises(ValueError, match="device 3; there is 0, 1"):
        profile.op_analyse("aten::mm", 3)


def test_op_analyse_counts_an_op_inside_one_of_its_name_once(trace_of):
    ranges = [op("aten::to(f32[2])", 0, 9_000), op("aten::to(f32[2])", 1_000, 5_000)]
    (found,) = json.loads(Profile(trace_of(ranges=ranges)).op_analyse("aten::to"))["aten::to"]
    assert (found["op_occurrences"], found["op_total_time(us)"]) == (1, 9.0)


def test_op_analyse_refuses_what_is_no_name_no_device_and_not_there(trace_of):
    profile = Profile(trace_of(ranges=GRAPH))
    for wrong in (None, 3, [], [3], ""):
        with pytest.raises(TypeError):
            profile.op_analyse(wrong)
    with pytest.raises(TypeError):
        profile.op_analyse("Conv2D", "0")
    with pytest.raises(ValueError, match="no operator of this profile is named 'Conv3D'"):
        profile.op_analyse(["Conv2D", "Conv3D"])
    with pytest.raises(ValueError, match="the CPU is device 0"):
        profile.op_analyse("Conv2D", 1)


@given(made=nests())
def test_statistics_add_up_to_the_device_time(trace_of, made):
    profile = Profile(trace_of(**made.tables))
    whole = profile.summary()["device_time"].item()
    for by in ("type", "operator"):
        frame = profile.operator_statistics(by)
        assert frame["total"].sum() == whole
        assert frame["share"].sum() == pytest.approx(1) or not whole
        ops = frame.filter(pl.col("op").is_not_null())
        assert ops["calls"].sum() == len(profile.ops())
    types = profile.operator_statistics()
    places = profile.operator_statistics("operator").filter(pl.col("op").is_not_null())
    assert types["operators"].sum() == len(places)
    assert profile.kernel_activities()["total"].sum() == (len(profile.kernels()) and whole - (
        profile.memops()["duration"].sum()))  # fmt: skip


def test_the_same_tensor_twice_lists_and_unknown_sizes_have_their_shapes(trace_of):
    ranges = [op("aten::cat([f32[2], =0, f32[?,3]], f32[]) {dim=0}", 0, 1000)]
    (found,) = json.loads(Profile(trace_of(ranges=ranges)).op_analyse("aten::cat"))["aten::cat"]
    assert found["input_shape"] == "input_1:[2],input_2:[2],input_3:[-1, 3],input_4:[]"
    bare = trace_of(ranges=[op("aten::mm()", 0, 1000)])
    (found,) = json.loads(Profile(bare).op_analyse("aten::mm"))["aten::mm"]
    assert found["input_shape"] == ""
