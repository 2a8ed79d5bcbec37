"""What the grids of kernels over lists of tensors bound."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope import profile
from opscope.core.analysis.roofline.coverage import CHUNK, at_most, bound

ATEN = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::TensorListMetadata<{}>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<"
    "{}, 1, 1, 0>, std::plus<float>, float>(at::native::(anonymous namespace)::TensorListMetadata<1>)"
)
APEX = (
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float, int>"
)


def limits(name: str, grid: str) -> tuple:
    return at_most(pl.DataFrame({"name": [name], "grid": [grid]})).row(0)


def blocks_of(sizes: list[int]) -> int:
    """The launch as it is made: every tensor in chunks of its own, each chunk a block."""
    return sum(len(range(0, size, CHUNK)) for size in sizes)


@given(st.lists(st.integers(1, 5 * CHUNK), min_size=1, max_size=20), st.integers(1, 5))
def test_no_list_holds_more_than_its_grid_says(sizes, lists):
    elements, moved = limits(ATEN.format(lists, "float"), f"{blocks_of(sizes)},1,1")
    assert sum(sizes) <= elements
    assert elements - sum(sizes) < len(sizes) * CHUNK  # as tight as a chunk a tensor
    assert moved == elements * 4 * 2 * lists


@pytest.mark.parametrize(
    ("name", "an_element"),
    [
        (APEX, 32),
        (ATEN.format(2, "float"), 16),
        (ATEN.format(2, "c10::Half"), 16),  # states may be wider than what the name says
        (ATEN.format(1, "double"), 16),
        ("void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::"
         "TensorListScalarListMetadata<float, (int)2>, at::native::<unnamed>::F<float>>", 16),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
         "namespace)::FusedOptimizerTensorListMetadata<5>, FusedAdamMathFunctor<float, 5>>", 40),
        ("void at::native::vectorized_elementwise_kernel<4, Metadata<2>>", None),
    ],
)  # fmt: skip
def test_the_name_tells_the_lists_and_their_type(name, an_element):
    expected = (3 * CHUNK, 3 * CHUNK * an_element) if an_element else (None, None)
    assert limits(name, "3,1,1") == expected


def test_another_grid_bounds_nothing():
    assert limits(APEX, "3,2,1")[1] is None
    assert bound(*limits(APEX, "3,2,1")) == ""


@pytest.mark.parametrize(
    ("file", "op", "updates"),
    [
        # the gradients that are all-reduced are the parameters that Adam updates, six steps
        ("ddp_rank3of8_a100_stacks.json.gz", "Optimizer.step#FusedAdam.step", 6 * 50_009_301),
        # three steps of ResNet-50's 25,557,032 parameters
        ("nccl_meta.json.gz", "aten::_foreach_mul_", 3 * 25_557_032),
    ],
)
def test_the_bound_of_a_real_update_is_near_it(shared, file, op, updates):
    loaded = profile.load(shared / "kineto" / file)
    kernels = loaded.kernels().filter(pl.col("op").cast(pl.String) == op)
    elements, moved = at_most(kernels).sum().row(0)
    assert updates <= elements < 1.35 * updates
    why = loaded.missing_costs().filter(pl.col("op") == op)["why"].item()
    assert why.endswith(bound(elements, moved))
    assert bound(elements, moved).startswith("; by its grids at most ")


@pytest.mark.parametrize("blocks", ["99999999999", "9" * 19, "9" * 30])
def test_a_grid_that_no_gpu_has_says_nothing(blocks):
    assert limits(ATEN.format(2, "float"), f"{blocks},1,1") == (None, None)
