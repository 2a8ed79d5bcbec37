"""Bytes of ops over lists of tensors: Kineto writes no element types of lists, but names of kernels tell them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opscope
from opscope.core.perf.shapes import NO_SIZES

NATIVE = "void at::native::(anonymous namespace)::"
OF_2_BYTES = f"{NATIVE}CatArrayBatchedCopy<{NATIVE[5:]}OpaqueType<2u>, unsigned int, 3, 64, 64>(x)"
OF_F32 = (
    f"{NATIVE}multi_tensor_apply_kernel<{NATIVE[5:]}TensorListMetadata<1>,"
    f" {NATIVE[5:]}BinaryOpScalarFunctor<float, 1, 1, 0>, std::plus<float>, float>(x)"
)
OTHER = "some_kernel(int)"
#: Two tensors of 4 x 8.
PAIR = [[4, 8], [4, 8]]
LIST = ["TensorList", "Scalar"]
NO_TYPES = "the trace gives sizes without element types"


def answer(folder: Path, op: str, types: list[Any], dims: list[Any], kernel: str):
    """The bytes of an op that launches a kernel, or why they are not known."""
    events: list[dict[str, Any]] = [
        {"cat": "cpu_op", "name": op, "pid": 1, "tid": 1, "ts": 100, "dur": 50,
         "args": {"Input Dims": dims, "Input type": types}},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 110, "dur": 5,
         "args": {"correlation": 1}},
        {"cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 200, "dur": 10,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
    ]  # fmt: skip
    path = folder / "trace.json"
    traced = [event | {"ph": "X"} for event in events]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": traced}))
    profile = opscope.load(path)
    (count,) = profile.op_totals()["bytes"].to_list()
    return profile.missing_costs()["why"].to_list()[0] if count is None else count


@pytest.mark.parametrize("op", ["aten::cat", "aten::stack", "aten::concat", "aten::hstack"])
def test_the_kernel_of_a_concatenation_tells_the_size_of_elements(tmp_path, op):
    assert answer(tmp_path, op, LIST, [PAIR, []], OF_2_BYTES) == 2 * 64 * 2  # read and written


@pytest.mark.parametrize("op", ["aten::_foreach_add_", "aten::_foreach_mul_"])
def test_the_kernel_of_an_op_over_lists_tells_the_type_of_elements(tmp_path, op):
    assert answer(tmp_path, op, LIST, [PAIR, []], OF_F32) == 2 * 64 * 4


def test_a_list_of_types_gives_each_element_its_own(tmp_path):
    mixed = [["float", "c10::BFloat16"], "Scalar"]
    # 32 of 4 bytes and 32 of 2 are read, 64 of 4 written
    assert answer(tmp_path, "aten::cat", mixed, [PAIR, []], OTHER) == 32 * 4 + 32 * 2 + 64 * 4
    # without a type an element is no tensor: 4 rows of 8 are read and written, by 4 indices
    indexed = ["float", ["long int", ""]]
    assert (
        answer(tmp_path, "aten::index", indexed, [[8, 8], [[4], []]], OTHER) == 2 * 32 * 4 + 4 * 8
    )


@pytest.mark.parametrize("op", ["aten::cat", "aten::stack", "aten::_foreach_add_"])
@pytest.mark.parametrize(("dims", "why"), [([PAIR, []], NO_TYPES), ([[], []], NO_SIZES)])
def test_where_nothing_tells_the_type_or_the_sizes_the_reason_is_given(tmp_path, op, dims, why):
    assert answer(tmp_path, op, LIST, dims, OTHER) == why
