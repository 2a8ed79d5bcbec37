"""DLProf's names: call hierarchies, types, ids, shapes and short kernel names."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opscope.core.dlprof import names
from opscope.core.dlprof.names import short_name
from opscope.core.rangetext import parse


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.nn.functional.conv2d", "conv2d"),
        ("Tensor.uniform_", "uniform_"),
        ("aten::sum.dim_IntList", "sum"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"),
        ("model/dense/MatMul", "MatMul"),
        ("MatMul", "MatMul"),
        ("cudaDeviceSynchronize_v3020", "cudaDeviceSynchronize_v3020"),
    ],
)
def test_the_type_of_an_op_is_its_last_name(name, kind):
    assert names.op_type(name) == kind


@given(st.text(max_size=30) | st.text("a0.:/ ", min_size=1, max_size=8))
@example("0: ")
@example("a::")
@example("a.")
def test_every_op_with_a_name_has_a_type(name):
    assert names.op_type(name) or not name


def test_a_repeated_call_has_its_number_in_brackets():
    stack = "/<module>/Net::_call_impl/Net::forward/Conv2d::_call_impl(2)/<lambda>/relu(12)"
    assert names.hierarchy(stack) == (
        "/module/Net::_call_impl/Net::forward/Conv2d::_call_impl[2]/lambda/relu[12]"
    )


def test_ops_without_a_marker_are_named_by_layer_and_type_and_numbered_by_source_line():
    keys = [
        ("encoder.0", "linear", "a.py:1"),
        ("encoder.0", "linear", "a.py:2"),
        ("encoder.1", "linear", "a.py:1"),
        (None, "randn", None),
    ]
    assert names.layered(keys) == [
        "/encoder/0/linear",
        "/encoder/0/linear[2]",
        "/encoder/1/linear",
        "/randn",
    ]


def test_ids_count_the_ops_of_a_type_by_their_first_start():
    types = pl.Series(["relu", "conv2d", "relu", "Relu"], dtype=pl.Categorical)
    found = names.op_ids(types, pl.Series([30, 20, 10, 40]))
    assert found.to_list() == ["RELU_2", "CONV2D_1", "RELU_1", "RELU_3"]


@given(st.lists(st.tuples(st.sampled_from("aAbc"), st.integers(0, 9)), max_size=20))
def test_ids_are_unique(ops):
    types = pl.Series([kind for kind, _ in ops], dtype=pl.Categorical)
    found = names.op_ids(types, pl.Series([time for _, time in ops], dtype=pl.Int64))
    assert found.n_unique() == len(ops)


def test_the_groups_of_an_op_are_the_levels_of_its_name():
    assert names.groups_of("/module/Net::forward/relu") == [
        "/",
        "/module/",
        "/module/Net::forward/",
    ]
    assert names.groups_of("dense/MatMul") == ["dense/"]
    assert names.groups_of("randn") == []


def test_shapes_of_conv2d_and_linear_name_their_axes():
    conv = parse("torch.nn.functional.conv2d(f32[32,3,32,32], f32[6,3,3,3], f32[6])")
    assert names.input_shapes(conv, "conv2d") == (
        "<N:32, C:3, H:32, W:32>; <K:6, C:3, R:3, S:3>; <6>"
    )
    assert names.output_shapes(conv, "conv2d") == "<N:32, K:6, P:30, Q:30>"
    linear = parse("torch.nn.functional.linear(f16[32,400], f16[120,400], f16[120])")
    assert names.input_shapes(linear, "linear") == "<N:32, K:400>; <M:120, K:400>; <120>"
    assert names.output_shapes(linear, "linear") == "<N:32, M:120>"
    assert names.data_type(linear) == "float16"


def test_conv2d_with_parameters_has_them_and_the_shape_that_they_give():
    conv = parse(
        "torch.nn.functional.conv2d(f32[1,3,32,32], f32[6,3,3,3]) "
        "{arg3=[2, 2], arg4=[1, 1], arg5=[1, 1], arg6=1}"
    )
    assert names.parameters(conv, "conv2d") == "<SH:2, SW:2>; <PH:1, PW:1>; <DH:1, DW:1>; <G:1>"
    assert names.output_shapes(conv, "conv2d") == "<N:1, K:6, P:16, Q:16>"


def test_an_output_that_cannot_be_computed_is_unknown():
    same = parse('torch.nn.functional.conv2d(f32[1,3,8,8], f32[6,3,3,3]) {padding="same"}')
    assert names.output_shapes(same, "conv2d") is None
    assert names.output_shapes(parse("torch.relu(f32[3])"), "relu") is None


def test_the_traces_own_outputs_are_shown_for_every_op():
    call = parse("aten::relu(f32[3,4]) -> f32[3,4]")
    assert names.output_shapes(call, "relu") == "<3, 4>"
    wrong = parse("torch.nn.functional.conv2d(f32[1,3,8,8], f32[6,3,3,3]) -> f32[1,6,4,4]")
    assert names.output_shapes(wrong, "conv2d") == "<N:1, K:6, P:4, Q:4>"


def test_short_names_are_those_that_cupti_recorded(shared: Path):
    checked = 0
    for path in sorted(shared.glob("*/*.sqlite")):
        with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
            if not database.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
            ).fetchone():
                continue
            columns = {
                row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")
            }
            if not {"shortName", "demangledName"} <= columns:
                continue
            for short, long in database.execute(
                "SELECT DISTINCT s.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                "JOIN StringIds s ON s.id = k.shortName JOIN StringIds d ON d.id = k.demangledName"
            ):
                assert short_name(long) == short
                checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void a::b<c::d<1>, (e)2>::f<g>(h *, i<j>)", "f"),
        ("(anonymous namespace)::kernel(int)", "kernel"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void k<x->y>(int)", "k"),
        ("a<b", "a<b"),
        ("", ""),
    ],
)
def test_a_name_that_is_no_cpp_stays_as_it_is(name, short):
    assert short_name(name) == short


@given(st.text(alphabet="ab:<>() -&", max_size=40))
def test_any_text_has_a_short_name(name):
    assert isinstance(short_name(name), str)
