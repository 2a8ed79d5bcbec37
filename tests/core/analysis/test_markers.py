"""Backward ops whose forward's shapes stand on the marker around it, as PyProf and DLProf write them."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.profile import Profile
from tests import traces


def tensor(*shape):
    return f"{{'name': '', 'type': 'tensor', 'shape': {shape}, 'dtype': 'float32'}}"


def marker(module, name, *tensors):
    return f"{{'mod': '{module}', 'op': '{name}', 'args': [{', '.join(tensors)}]}}"


@pytest.fixture
def flops(trace_of):
    """The FLOPs of the backward's ops, of markers around forward ops and nodes with ops inside."""

    def build(markers, nodes):
        ranges, calls, kernels, at, number = [], [], [], 0, 0

        def add(text, start, end, seq=None):
            ranges.append({"process": 0, "thread": 1, "start": start, "end": end, "text": text,
                           "kind": "pushpop", "domain": ""})  # fmt: skip

        for text, inside in markers:
            add(text, at, at + 1000)
            for place, op in enumerate(inside):
                add(op, at + 10 + 100 * place, at + 60 + 100 * place)
            at += 1000
        for node, inside in nodes:
            add(node, at, at + 1000)
            for place, op in enumerate(inside):
                start = at + 10 + 100 * place
                add(op, start, start + 50)
                calls.append({"process": 0, "thread": 1, "start": start + 1, "end": start + 2,
                              "correlation": number, "name": "cudaLaunchKernel"})  # fmt: skip
                kernels.append({"process": 0, "device": 0, "stream": 7, "start": start + 5, "end": start + 6,
                                "name": "k", "correlation": number})  # fmt: skip
                number += 1
            at += 1000
        profile = Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels))
        return profile.kernels().sort("start")["matrix_flops"].to_list()

    return build


LINEAR = marker("torch.nn.functional", "linear", tensor(8, 16), tensor(32, 16), tensor(32))


def test_both_products_of_a_backward_cost_as_much_as_their_forward(flops):
    found = flops([(LINEAR, ["addmm, seq = 5"])], [("AddmmBackward, seq = 5", ["mm, seq = 0"] * 2)])
    assert found == [2 * 8 * 16 * 32] * 2


def test_a_marker_of_another_kind_of_op_does_not_stand_in(flops):
    attention = marker("torch.nn.functional", "multi_head_attention_forward", tensor(8, 4, 16), tensor(8, 4, 16), tensor(8, 4, 16))  # fmt: skip
    found = flops([(attention, ["bmm, seq = 5"])], [("BmmBackward, seq = 5", ["bmm, seq = 0"] * 2)])
    assert found == [None, None]


def test_a_marker_around_two_products_tells_the_sizes_of_neither(flops):
    found = flops(
        [(LINEAR, ["mm, seq = 5", "mm, seq = 6"])],
        [
            ("MmBackward, seq = 6", ["mm, seq = 0"] * 2),
            ("MmBackward, seq = 5", ["mm, seq = 0"] * 2),
        ],
    )
    assert found == [None] * 4


def test_one_op_s_two_gradients_are_no_two_ops(flops):
    other = marker("torch.nn.functional", "linear", tensor(4, 4), tensor(2, 4))
    found = flops(
        [(LINEAR, ["addmm, seq = 5"]), (other, ["addmm, seq = 6"])],
        [
            ("AddmmBackward, seq = 6", ["mm, seq = 0"]),
            ("AddmmBackward, seq = 5", ["mm, seq = 0"] * 2),
        ],
    )
    assert found == [2 * 4 * 4 * 2, *[2 * 8 * 16 * 32] * 2]


def test_the_backward_of_a_real_model_is_twice_its_forward(shared):
    profile = traces.load(shared / "nvprof" / "language_model.sqlite")
    ops = profile.ops().with_columns(pl.col(pl.Categorical).cast(pl.String))
    products = ops.filter((pl.col("direction") == "backward") & pl.col("op").is_in(["mm", "bmm"]))
    assert len(products) == 26
    assert products["matrix_flops"].null_count() == 0
    counted = ops.filter("canonical").group_by("direction").agg(pl.col("matrix_flops").sum())
    whole = dict(counted.rows())
    assert whole["backward"] == 2 * whole["forward"] == 20_058_080_000
    assert profile.summary()["flops_share"].item() > 0.94


def number(value):
    return f"{{'name': '', 'type': 'float', 'value': {value}}}"


@pytest.fixture
def vector_flops(trace_of):
    """The elementwise FLOPs of a backward op, whose forward's sizes stand on the marker around it."""

    def build(text, inside, node, op):
        base = {"process": 0, "kind": "pushpop", "domain": ""}
        ranges = [(text, 0, 90, 1), (inside, 10, 50, 1), (node, 100, 190, 2), (op, 110, 150, 2)]
        profile = Profile(trace_of(
            ranges=[{**base, "text": one, "start": start, "end": end, "thread": thread}
                    for one, start, end, thread in ranges],
            calls=[{"process": 0, "thread": 2, "start": 111, "end": 112, "correlation": 1,
                    "name": "cudaLaunchKernel"}],
            kernels=[{"process": 0, "device": 0, "stream": 7, "start": 200, "end": 201, "name": "k",
                      "correlation": 1}],
        ))  # fmt: skip
        return profile.kernels().select("vector_flops", "bytes").row(0)

    return build


@pytest.mark.parametrize(
    ("text", "costs"),
    [
        (marker("Tensor", "__mul__", tensor(8, 16), number(2.0)), (128, 4 * 256)),
        (marker("Tensor", "__mul__", tensor(8, 16), tensor(8, 16)), (128, 4 * 384)),
        # the gradient of the smaller one is summed up as well: which of them this is, is not recorded
        (marker("Tensor", "__mul__", tensor(8, 16), tensor(1, 16)), (None, None)),
        (marker("torch", "pow", tensor(8, 16), number(2.0)), (None, None)),
    ],
)
def test_a_product_s_gradient_has_its_size_where_only_one_is_possible(vector_flops, text, costs):
    assert vector_flops(text, "mul, seq = 5", "MulBackward0, seq = 5", "mul, seq = 0") == costs


def test_dropout_s_gradient_reads_the_mask(vector_flops):
    text = marker("torch.nn.functional", "dropout", tensor(8, 16))
    found = vector_flops(text, "_fused_dropout, seq = 5", "FusedDropoutBackward, seq = 5", "_masked_scale, seq = 0")  # fmt: skip
    assert found == (2 * 128, 4 * 256 + 128)
