"""The tree of modules: paths make it, and what is in its rows adds up to the whole."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given

from opscope.profile import Profile
from tests.core.analysis.made_nests import nests

PLACE = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
RAN = {"process": 0, "device": 0, "stream": 7}


def op(text: str, start: int, end: int, category: str = "forward") -> dict:
    return {**PLACE, "text": f"{text}()", "category": category, "start": start, "end": end}


def layer(text: str, start: int, end: int) -> dict:
    return {**PLACE, "text": text, "category": "layer", "start": start, "end": end}


def tree(frame: pl.DataFrame) -> dict[str, str | None]:
    """The path of each module, and that of the one around it."""
    names = dict(frame.select("module_id", "layer").iter_rows())
    modules = frame.filter(pl.col("row_kind").is_in(["module", "group"]))
    return {row["layer"]: names[row["parent_module"]] for row in modules.to_dicts()}


def rows(frame: pl.DataFrame, key: str = "layer") -> dict[str | None, dict]:
    return {row[key]: row for row in frame.to_dicts()}


def test_lists_of_blocks_stand_between_modules_and_are_never_called(trace_of):
    ranges = [
        layer("Net", 0, 100), layer("Net.blocks.0", 10, 40), op("aten::mm", 15, 30),
        layer("Net.blocks.1", 50, 90), op("aten::mm", 55, 60), op("aten::add", 92, 95),
        op("aten::randn", 200, 250),
    ]  # fmt: skip
    frame = Profile(trace_of(ranges=ranges)).modules()
    assert tree(frame) == {
        "Net": None,
        "Net.blocks": "Net",
        "Net.blocks.0": "Net.blocks",
        "Net.blocks.1": "Net.blocks",
    }
    found = rows(frame)
    assert (found["Net"]["module_calls"], found["Net"]["call_time"]) == (1, 100)
    assert (found["Net"]["host_self"], found["Net"]["host_total"]) == (3, 23)
    blocks = found["Net.blocks"]
    assert (blocks["row_kind"], blocks["module_calls"], blocks["host_self"]) == ("group", None, 0)
    assert (blocks["inside"], found["Net"]["inside"]) == (2, 3)
    names = frame["module"].to_list()
    assert names == ["(all)", "(outside any module)", "Net", "blocks", "0", "1"]
    assert rows(frame, "module")["(outside any module)"]["host_self"] == 50


def test_a_module_that_calls_itself_is_called_twice_and_timed_once(trace_of):
    ranges = [layer("Net.a", 0, 100), layer("Net.a", 20, 50), op("aten::mm", 30, 40)]
    found = rows(Profile(trace_of(ranges=ranges)).modules())["Net.a"]
    assert (found["module_calls"], found["call_time"], found["host_total"]) == (2, 100, 10)


def test_kinetos_modules_have_their_class(trace_of):
    own = {**PLACE, "domain": "python", "category": "layer"}
    ranges = [
        {**own, "text": "nn.Module: ResNet_0", "start": 0, "end": 100},
        {**own, "text": "nn.Module: Conv2d_12", "start": 10, "end": 50},
        op("aten::conv2d", 20, 30),
    ]
    found = rows(Profile(trace_of(ranges=ranges)).modules(), "module")
    assert found["Conv2d_12"]["module_type"] == "Conv2d"
    assert found["Conv2d_12"]["layer"] == "ResNet_0/Conv2d_12"


def test_backward_ops_count_for_the_module_of_their_forward_op(trace_of):
    forward = {**op("aten::mm", 10, 20), "seq": 5, "fwd_thread": 1}
    backward = {**op("MmBackward0", 210, 220, "backward"), "seq": 5, "fwd_thread": 1, "thread": 2}
    frame = Profile(trace_of(ranges=[layer("Net", 0, 100), forward, backward])).modules()
    net = rows(frame)["Net"]
    assert (net["forward_part"], net["backward_part"], net["rest_part"]) == (10, 10, 0)
    assert net["device_total"] == net["host_total"] == 20


def test_modules_below_a_depth_are_part_of_those_around_them(trace_of):
    ranges = [
        layer("Net", 0, 100), layer("Net.a", 10, 40), layer("Net.a.b", 12, 30), op("aten::mm", 15, 25),
        op("aten::add", 32, 35),
    ]  # fmt: skip
    profile = Profile(trace_of(ranges=ranges))
    folded = rows(profile.modules(depth=2))
    assert set(folded) == {None, "Net", "Net.a"}
    assert (folded["Net.a"]["host_self"], folded["Net.a"]["module_calls"]) == (13, 1)
    assert folded["Net.a"]["call_time"] == 30
    assert rows(profile.modules())["Net.a"]["host_self"] == 3
    with pytest.raises(ValueError, match="at least 1"):
        profile.modules(depth=0)


def test_a_list_of_blocks_has_the_time_of_those_that_are_folded_into_it(trace_of):
    ranges = [layer("Net.blocks.0", 10, 40), op("aten::mm", 15, 30)]
    folded = rows(Profile(trace_of(ranges=ranges)).modules(depth=1))
    assert (folded["Net"]["row_kind"], folded["Net"]["host_self"]) == ("group", 15)


def test_memory_is_the_modules_that_allocated_it(trace_of):
    allocations = [
        {"process": 0, "device": 0, "thread": 1, "time": at, "address": number, "bytes": size}
        for number, (at, size) in enumerate([(16, 64), (56, 32)])
    ]
    ranges = [
        layer("Net", 0, 100),
        layer("Net.a", 10, 40),
        op("aten::mm", 15, 30),
        op("aten::mm", 50, 60),
    ]
    found = rows(Profile(trace_of(ranges=ranges, allocations=allocations)).modules())
    assert (found["Net.a"]["allocated"], found["Net.a"]["at_peak"]) == (64, 64)
    assert (found["Net"]["allocated"], found["Net"]["at_peak"]) == (96, 96)


def test_a_path_of_many_parts_is_no_deeper_than_a_tree_can_be_read(trace_of):
    ranges = [layer(".".join("a" * 5000), 0, 100), op("aten::mm", 10, 20)]
    frame = Profile(trace_of(ranges=ranges)).modules()
    assert 60 < frame["depth"].max() < 70
    assert frame["host_self"].sum() == 10


def test_ops_that_name_their_layers_are_no_calls_of_these(trace_of):
    """MindSpore's graphs: each operator has the path of its cell in its name, and no cell has a range."""
    net = "Default/network-WithLossCell/_backbone-Net/"
    ranges = [
        {
            **PLACE,
            "domain": "mindspore",
            "text": f"{net}c1-Conv2d/{name}-op0",
            "start": at,
            "end": at + 10,
        }
        for at, name in ((0, "Conv2D"), (20, "BiasAdd"))
    ]
    found = rows(Profile(trace_of(ranges=ranges)).modules())["Net.c1"]
    assert (found["host_total"], found["module_calls"], found["call_time"]) == (20, None, None)


def test_nodes_that_a_library_joined_are_one_module_where_the_first_is(trace_of):
    joined = "net/conv1/Conv + net/relu1/Relu"
    ranges = [layer(joined, 0, 100), op("aten::mm", 10, 20)]
    frame = Profile(trace_of(ranges=ranges)).modules()
    assert tree(frame) == {"net": None, "net/conv1": "net", joined: "net/conv1"}


def test_a_trace_in_which_nothing_ran_has_no_modules(trace_of):
    assert Profile(trace_of()).modules().is_empty()


@given(made=nests())
def test_what_modules_took_themselves_adds_up_to_the_whole(trace_of, made):
    profile = Profile(trace_of(**made.tables))
    summary = profile.summary().row(0, named=True)
    for frame in (profile.modules(), profile.modules(depth=1)):
        whole = frame.row(0, named=True)
        assert whole["device_total"] == frame["device_self"].sum() == summary["device_time"]
        assert whole["host_total"] == frame["host_self"].sum() == profile.ops()["self_time"].sum()
        assert (
            whole["forward_part"] + whole["backward_part"] + whole["rest_part"]
            == whole["device_total"]
        )
        assert frame["module_id"].to_list() == list(range(len(frame)))
        inner = frame.group_by("parent_module").agg(
            pl.col("device_total", "host_total").sum().name.suffix("_inner")
        )
        both = frame.join(
            inner, left_on="module_id", right_on="parent_module", how="left"
        ).fill_null(0)
        for side in ("device", "host"):
            assert (both[f"{side}_self"] + both[f"{side}_total_inner"]).to_list() == both[
                f"{side}_total"
            ].to_list()
    by_layer = profile.totals_by("layer").filter(pl.col("reason").is_null())
    wanted = dict(by_layer.select("layer", "device_time").iter_rows())
    inside = profile.modules().filter(pl.col("row_kind").is_in(["module", "outside"]))
    found = dict(inside.select("layer", "device_self").iter_rows())
    assert {layer: time for layer, time in found.items() if layer in wanted} == wanted


def test_a_module_costs_nothing_only_where_the_cost_of_all_its_ops_is_known(trace_of):
    """Beside an op of which nobody knows the FLOPs, a 0 would say that the module computes nothing."""
    ranges = [
        layer("Net.free", 0, 10), op("aten::view", 1, 9),
        layer("Net.own", 20, 40), op("aten::view", 21, 29), op("mine::attention", 30, 39),
        layer("Net.both", 50, 70), op("mine::attention", 51, 55),
        {**op("aten::mm", 56, 69), "text": "aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]"},
    ]  # fmt: skip
    by_layer = rows(Profile(trace_of(ranges=ranges)).modules())
    flops = {path: by_layer[path]["flops"] for path in ("Net.free", "Net.own", "Net.both", "Net")}
    assert flops == {"Net.free": 0, "Net.own": None, "Net.both": 48, "Net": 48}
