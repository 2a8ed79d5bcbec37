"""Of a sparse tensor's cost only what its text tells is known, whatever op it comes into."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.perf.stored import STORED, STRIDELESS
from opscope.core.rangetext import parse
from opscope.core.schema import SPARSE_LAYOUTS, OpCall, TensorSpec


def dense(*shape: int) -> TensorSpec:
    return TensorSpec("f32", shape)


@given(
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=20),
    st.integers(1, 4),
    st.sampled_from(SPARSE_LAYOUTS),
)
def test_a_product_is_a_multiply_add_for_each_stored_element_and_lane(pattern, wide, layout):
    matrix = TensorSpec("f32", (6, 7), layout=layout, stored=len(pattern))
    kept = np.zeros((6, 7), int)
    kept[tuple(np.array(sorted(pattern), int).reshape(-1, 2).T)] = 1
    # products of ones count the multiply-adds whose factor is stored
    done = int((kept @ np.ones((7, wide), int)).sum())
    for call in (
        OpCall("aten::mm", (matrix, dense(7, wide)), (dense(6, wide),)),
        OpCall("aten::mm", (dense(wide, 6), matrix)),
        OpCall("aten::addmm.out", (dense(wide), matrix, dense(7, wide))),
        OpCall("aten::_sparse_addmm", (dense(6, wide), matrix, dense(7, wide))),
        OpCall("aten::sparse_sampled_addmm", (matrix, dense(6, wide), dense(wide, 7)), (matrix,)),
        *([OpCall("aten::mv", (matrix, dense(7)))] if wide == 1 else []),
    ):
        cost, why = perf.cost(call)
        assert why is None
        assert (cost.matrix_flops, cost.vector_flops) == (2 * done, 0)
        assert cost.by_dtype == ({"f32": 2 * done} if done else {})
        assert cost.bytes is None
        assert "indices" in cost.bytes_reason


@pytest.mark.parametrize("layout", SPARSE_LAYOUTS)
@pytest.mark.parametrize(
    "text",
    [
        "aten::mm({0}, f32[8,4]) -> f32[8,4]",
        "aten::mm(f32[4,8], {0})",
        "aten::mm({1}, {1}) -> {0}",
        "aten::addmm({0}, f32[8,8], f32[8,8])",
        "aten::bmm({0}, f32[2,8,4]) -> f32[2,8,4]",
        "aten::linear(f32[4,8], {1}) -> f32[4,8]",
        "aten::add.Tensor(f32[8,8], {1}) -> f32[8,8] {{alpha=1}}",
        "aten::add.Tensor({1}, {1}) -> {0} {{alpha=1}}",
        "aten::mul.Tensor({1}, _) -> {0} {{other=2}}",
        "aten::sum({1}) -> f32[]",
        "aten::relu({0}) -> {0}",
        "aten::_foreach_mul.Scalar([f32[4], {0}]) -> ([f32[4], {0}]) {{scalar=2.0}}",
        "aten::_sparse_mm({0}, f32[8,4])",
        "aten::sparse_sampled_addmm({0}, f32[8,4], f32[4,8])",
        "aten::_fused_sgd_([f32[8,8]], [{1}], []) {{lr=0.1}}",
    ],
)
def test_what_a_sparse_tensor_stores_is_no_dense_figure(text, layout):
    bare = f"f32[8,8]{{{layout}}}"
    call = parse(text.format(bare, f"f32[8,8]{{{layout}:5}}"))
    why = STRIDELESS if layout == "other" else STORED
    assert perf.cost(call) == (None, why)
    (row,) = perf.columns([call]).to_dicts()
    assert (row["flops"], row["bytes"], row["reason"]) == (None, None, why)
    assert not row["tc_ready"]


@pytest.mark.parametrize(
    "text",
    [
        "aten::_to_dense(f32[8,8]{csr:5}) -> f32[8,8]",
        "aten::_to_sparse(f32[8,8]) -> f32[8,8]{coo}",
        "aten::t(f32[8,8]{coo:5}) -> f32[8,8]{coo}",
        "aten::clone(f32[8,8]{bsr:8}) -> f32[8,8]{bsr}",
        "aten::zeros_like(f32[8,8]{csc:5}) -> f32[8,8]{csc}",
        "c10d::allreduce_([f32[8,8]{coo:5}])",
    ],
)
def test_what_only_moves_it_has_no_flops_and_bytes_that_are_not_known(text):
    cost, why = perf.cost(parse(text))
    assert why is None
    assert (cost.flops, cost.bytes) == (0, None)
    assert cost.bytes_reason


@pytest.mark.parametrize(
    "text",
    [
        "aten::values(f32[8,8]{csr:5}) -> f32[5]",
        "aten::detach(f32[8,8]{coo:5}) -> f32[8,8]{coo}",
        "aten::_nnz(f32[8,8]{coo:5}) -> ()",
        "aten::sparse_coo_tensor.indices_size(i64[2,5], f32[5]) -> f32[8,8]{coo}",
        "aten::embedding_sparse_backward(f32[3,8], i64[3]) -> f32[100,8]{coo} {num_weights=100}",
    ],
)
def test_what_touches_no_element_is_free_of_it(text):
    cost, why = perf.cost(parse(text))
    assert why is None
    assert (cost.flops, cost.bytes) == (0, 0)


def test_no_op_at_all_takes_a_sparse_tensor_for_a_dense_one():
    """Every registered name: no bytes but known zeros, no FLOPs but of products that tell theirs."""
    one = TensorSpec("f32", (8, 8), layout="csr")
    knowing = {entry.family for entry in perf.entries().values() if entry.sparse}
    assert knowing == {"view", "query", "allocation", "copy"}
    for name, entry in perf.entries().items():
        if entry.sparse:
            continue
        for outputs in (None, (one,), (dense(8, 8),)):
            cost, _ = perf.cost(OpCall(name, (one, dense(8, 8), dense(8, 8)), outputs))
            if cost is not None:
                assert cost.flops == 0, name
                assert cost.bytes is None or (entry.sparse and cost.bytes == 0), name


def test_a_sparse_forward_tells_nothing_of_its_backward():
    product = parse("aten::mm(f32[8,8]{csr:5}, f32[8,4]) -> f32[8,4]")
    assert perf.cost(OpCall("MmBackward0"), forward=product) == (None, STORED)
    assert perf.cost(OpCall("aten::mm"), forward=product)[0] is None
    assert perf.backward_costs(product) == (None, STORED)
    table = parse("aten::convolution(f32[1,3,8,8]{coo}, f32[4,3,3,3], _) -> f32[1,4,6,6]")
    grad = parse("aten::convolution_backward(f32[1,4,6,6], _, _)")
    assert perf.cost(grad, forward=table)[0] is None
    assert perf.input_grad(table) == perf.weight_grad(table) == (None, STORED)


@pytest.mark.parametrize(
    "text",
    [
        "aten::addmm(f32[4], f32[8,16]{0}, f32[16,4]) -> f32[8,4]",
        "aten::relu(f32[8,16]{0}) -> f32[8,16]{0}",
        "aten::convolution(f32[1,3,8,8]{0}, f32[4,3,3,3], _) -> f32[1,4,6,6]{0} {{padding=[0, 0]}}",
    ],
)
def test_a_blocked_layout_holds_what_its_sizes_say(text):
    plain, blocked = (parse(text.format(layout)) for layout in ("", "{mkldnn}"))
    cost, _ = perf.cost(plain)
    assert cost.flops > 0
    assert cost.bytes > 0
    assert perf.cost(blocked) == (cost, None)


def test_of_a_nested_tensor_the_irregular_sizes_are_not_known():
    cost, why = perf.cost(
        parse("aten::linear(f32[2,j1,8]{jagged}, f32[4,8]) -> f32[2,j1,4]{jagged}")
    )
    assert cost is None
    assert "not known" in why


def test_matrices_that_do_not_fit_and_sizes_beyond_any_machine():
    for text in (
        "aten::mm(f32[8,8]{csr:5}, f32[7,4])",
        "aten::mm(f32[8,8]{csr:4611686018427387904}, f32[8,4])",
        "aten::mm(f32[8,?]{csr:5}, f32[8,4])",
        "aten::mm(f32[]{csr:5}, f32[8,4])",
        "aten::bmm(f32[2,8,8]{csr:5}, f32[3,8,4])",
    ):
        cost, why = perf.cost(parse(text))
        assert cost is None
        assert why
