"""Norms of matrices by singular values cost a decomposition; the others pass over the elements."""

from __future__ import annotations

import pytest

from opscope.core import perf
from opscope.core.schema import OpCall, TensorSpec


def cost_of(name, shape, dtype="f32", **params):
    return perf.cost(
        OpCall(f"aten::{name}", (TensorSpec(dtype, shape),), None, tuple(params.items()))
    )


def known(*given, **params):
    cost, why = cost_of(*given, **params)
    assert cost is not None, why
    return cost


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("nuclear_norm", {"keepdim": False}),
        ("linalg_matrix_norm", {"ord": "nuc"}),
        ("linalg_matrix_norm", {"ord": 2}),
        ("linalg_matrix_norm", {"ord": -2.0}),
        ("linalg_norm", {"ord": "nuc"}),
        ("linalg_norm", {"ord": 2}),
    ],
)
def test_a_norm_of_singular_values_costs_what_they_cost(name, params):
    cost = known(name, (30, 20), **params)
    assert cost.matrix_flops == known("linalg_svdvals", (30, 20), driver=None).matrix_flops > 0
    assert cost.vector_flops == 19
    assert cost.bytes_read == 30 * 20 * 4
    assert cost.bytes_written == 4


def test_each_matrix_of_a_batch_has_a_norm():
    cost = known("linalg_matrix_norm", (5, 30, 7, 20), ord=2, dim=(1, 3))
    one = known("linalg_matrix_norm", (30, 20), ord=2)
    assert (cost.matrix_flops, cost.vector_flops) == (35 * one.matrix_flops, 35 * one.vector_flops)
    assert cost.bytes_written == 35 * 4


@pytest.mark.parametrize(
    ("name", "shape", "params"),
    [
        ("linalg_matrix_norm", (30, 20), {"ord": "fro"}),
        ("linalg_matrix_norm", (30, 20), {"keepdim": False}),
        ("linalg_norm", (600,), {"ord": 2}),
        ("linalg_norm", (30, 20), {"ord": None}),
        ("linalg_norm", (30, 20), {"ord": 2, "dim": (1,)}),
    ],
)
def test_other_norms_pass_over_the_elements_once(name, shape, params):
    cost = known(name, shape, **params)
    assert (cost.matrix_flops, cost.vector_flops) == (0, 2 * 600)


def test_a_trace_without_parameters_does_not_tell_which_norm():
    assert (
        cost_of("linalg_matrix_norm", (30, 20))[1]
        == "the trace does not record which norm is computed"
    )
    assert known("linalg_norm", (600,)).vector_flops == 1200
