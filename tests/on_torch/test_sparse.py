"""What both observers tell of sparse tensors: the layout, how much is stored, and no dense figure."""

# ruff: noqa: E402 - without torch nothing below can be imported
from __future__ import annotations

import polars as pl
import pytest

import opscope
from opscope.core.rangetext import parse

torch = pytest.importorskip("torch")

from opscope.adapters.torch.native import BuildError, plan
from tests.on_torch.test_native import Recording


@pytest.fixture(params=["native", "dispatch"])
def mode(request, monkeypatch):
    """Either observer."""
    if request.param == "native":
        try:
            compiler = plan().compiler
        except BuildError as error:
            pytest.skip(str(error))
        if compiler is None:
            pytest.skip("no C++ compiler to build the native observer with")
    monkeypatch.setenv("OPSCOPE_TORCH_OPS", request.param)
    monkeypatch.delenv("OPSCOPE_TORCH_LEVELS", raising=False)
    return request.param


def texts(recording, mode, name):
    """Of the ops of that name; they were seen by the observer that was asked for."""
    assert f"ops, {mode}" in set(recording.trace.tables["own_costs"]["part"])
    return [op["text"].partition(" on ")[0] for op in recording.named(name)]


PATTERN = torch.tensor([[1.0, 0, 0, 2], [0, 3, 0, 0], [0, 0, 0, 0], [0, 4, 0, 0]])
MADE = {
    "coo": (PATTERN.to_sparse, 4),
    "csr": (PATTERN.to_sparse_csr, 4),
    "csc": (PATTERN.to_sparse_csc, 4),
    # the blocks of two by two that are not all zeros: three
    "bsr": (lambda: PATTERN.to_sparse_bsr((2, 2)), 12),
    "bsc": (lambda: PATTERN.to_sparse_bsc((2, 2)), 12),
}


@pytest.mark.parametrize("layout", MADE)
def test_a_text_tells_the_layout_and_what_is_stored(layout, mode, tmp_path):
    make, stored = MADE[layout]
    matrix, wide = make(), torch.ones(4, 3)
    with Recording(tmp_path) as recording:
        matrix.to_dense()
        matrix * 2
        if layout != "bsc":  # of which PyTorch has no product from this side
            matrix @ wide
            torch.addmm(wide, matrix, wide)
    bare, counted = f"f32[4,4]{{{layout}}}", f"f32[4,4]{{{layout}:{stored}}}"
    (dense,) = texts(recording, mode, "aten::_to_dense")
    assert dense.startswith(f"aten::_to_dense({counted}) -> f32[4,4]")
    (twice,) = texts(recording, mode, "aten::mul.Tensor")
    assert twice == f"aten::mul.Tensor({counted}, _) -> {bare} {{other=2}}"
    if layout != "bsc":
        assert texts(recording, mode, "aten::mm") == [f"aten::mm({counted}, f32[4,3]) -> f32[4,3]"]
        (added,) = texts(recording, mode, "aten::addmm")
        assert added.startswith(f"aten::addmm(f32[4,3], {counted}, f32[4,3]) -> f32[4,3]")


def test_what_is_stored_is_the_size_of_the_values_of_each(mode, tmp_path):
    one, two = (torch.diag(torch.tensor(kept)).to_sparse_csr() for kept in ([1.0, 0], [1.0, 2]))
    with Recording(tmp_path) as recording:
        for matrix in (one, two, one):
            matrix.values()
    assert texts(recording, mode, "aten::values") == [
        "aten::values(f32[2,2]{csr:1}) -> f32[1]",
        "aten::values(f32[2,2]{csr:2}) -> f32[2]",
        "aten::values(f32[2,2]{csr:1}) -> f32[1]",
    ]


def test_what_is_ragged_is_no_part_of_a_nested_tensors_sizes(mode, tmp_path):
    ragged = [
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(n, 3)], layout=kind)
        for n in (4, 5)
        for kind in (torch.jagged, torch.strided)
    ]
    with Recording(tmp_path) as recording:
        for one in ragged:
            one.values()
    told = [parse(op["text"]) for op in recording.ops.to_dicts() if "values" in op["text"]]
    assert [call.inputs[0].layout for call in told] == ["jagged", "nested"] * 2
    assert [call.outputs[0].shape for call in told] == [(6, 3), (18,), (7, 3), (21,)]


def test_a_sparse_tensor_is_not_taken_for_an_expanded_one(mode, tmp_path):
    """PyTorch gives a COO tensor the strides of a number that is repeated."""
    pair = (torch.ones(1, 1).expand(4, 4), PATTERN.to_sparse(), PATTERN.to_mkldnn())
    assert pair[0].stride() == pair[1].stride() == (0, 0)
    with Recording(tmp_path) as recording:
        for one in pair:
            one.clone()
    inputs = [parse(op["text"]).inputs[0] for op in recording.named("aten::clone")]
    assert [one.strides for one in inputs] == [(0, 0), None, None]
    assert [one.layout for one in inputs] == [None, "coo", "mkldnn"]


def test_matrices_that_store_ever_more_do_not_fill_the_memory_with_texts(mode, tmp_path):
    dense = torch.zeros(10, 10)
    with Recording(tmp_path) as recording:
        for place in range(60):
            dense.view(-1)[place] = 1
            dense.to_sparse() @ dense
    seen = texts(recording, mode, "aten::mm")
    assert len(seen) == 60
    assert seen[:2] == [
        f"aten::mm(f32[10,10]{{coo:{n}}}, f32[10,10]) -> f32[10,10]" for n in (1, 2)
    ]
    assert len(set(seen)) == 33
    assert seen[-1] == "aten::mm(f32[10,10]{coo}, f32[10,10]) -> f32[10,10]"


def test_a_profile_has_the_flops_of_what_is_stored_and_null_where_that_is_not_told(mode, tmp_path):
    matrix, wide = PATTERN.to_sparse_csr(), torch.ones(4, 3)
    opscope.init(frameworks="torch")
    try:
        with opscope.capture(tmp_path / "run.opscope"):
            matrix @ wide
            matrix + matrix
            wide @ wide.t()
    finally:
        opscope.shutdown()
    ops = opscope.load(tmp_path / "run.opscope").ops()
    ops = ops.with_columns(pl.col("op").cast(pl.String)).filter(
        pl.col("op").is_in(["aten::mm", "aten::add.Tensor"])
    )
    assert ops["op"].to_list() == ["aten::mm", "aten::add.Tensor", "aten::mm"]
    assert ops["flops"].to_list() == [2 * 4 * 3, None, 2 * 4 * 4 * 3]
    assert ops["bytes"].to_list() == [None, None, 4 * (12 + 12 + 16)]
