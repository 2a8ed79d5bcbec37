"""Costs that a call's own text does not tell and what stands around it does."""

from __future__ import annotations

import json

import pytest

from opscope.profile import Profile

ENGINE = "autograd::engine::evaluate_function: "
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy"


def op(start: int, end: int, text: str, seq: int | None = None) -> dict:
    category = "backward" if "Backward" in text else None
    return {
        "process": 0, "thread": 1, "start": start, "end": end, "domain": "kineto",
        "category": "communication" if text.startswith(("nccl:", "c10d::")) else category,
        "kind": "pushpop", "text": text, "seq": seq, "fwd_thread": None if seq is None else 1,
    }  # fmt: skip


def launched(start: int, name: str = "k") -> tuple[dict, dict]:
    return (
        {"process": 0, "thread": 1, "start": start, "end": start + 1,
         "name": "cudaLaunchKernel", "correlation": start},
        {"process": 0, "device": 0, "start": start + 1000, "end": start + 1100, "name": name,
         "correlation": start},
    )  # fmt: skip


def kernel_costs(trace_of, ranges, *pairs):
    calls, kernels = zip(*pairs, strict=True)
    profile = Profile(trace_of(ranges=ranges, calls=list(calls), kernels=list(kernels)))
    return profile.kernels().sort("start").select("flops", "bytes").rows()


def summed(forward: str, node: str, grad: str) -> list[dict]:
    """A forward, and in its backward a sum that the engine makes after the node is done."""
    return [
        op(0, 10, forward, 7),
        op(100, 200, f'"{ENGINE}{node}"()', 7),
        op(110, 120, f"{node}({grad})", 7),
        op(130, 150, f"aten::sum({grad})"),
        op(132, 149, f"aten::sum({grad})"),
    ]


@pytest.mark.parametrize(
    ("forward", "node", "outputs"),
    [
        ("aten::addmm(f32[5], f32[6,3], f32[3,5])", "AddmmBackward0", 5),
        ("aten::add(f32[6,5], f32[1,5])", "AddBackward0", 5),
        ("aten::mul(f32[6,1], f32[6,5])", "MulBackward0", 6),
        ("aten::mul(f32[], f32[6,5])", "MulBackward0", 1),
        ("aten::mul(?[], f32[6,5])", "MulBackward0", None),  # a number's place
        ("aten::add(f32[6,1], f32[1,5])", "AddBackward0", None),  # which of the two is not told
        ("aten::relu(f32[6,5])", "ReluBackward0", None),
    ],
)
def test_a_gradient_is_summed_to_the_shape_that_was_broadcast(trace_of, forward, node, outputs):
    found = kernel_costs(trace_of, summed(forward, node, "f32[6,5]"), launched(140))
    # additions: inputs less outputs; bytes: every element of both once
    expected = (None, None) if outputs is None else (30 - outputs, 4 * (30 + outputs))
    assert found == [expected]


def test_a_sum_of_a_node_s_own_is_no_such_gradient(trace_of):
    """Inside the node any sum may stand; only the engine's own has one meaning."""
    ranges = [
        op(0, 10, "aten::addmm(f32[5], f32[6,3], f32[3,5])", 7),
        op(100, 200, f'"{ENGINE}AddmmBackward0"()', 7),
        op(110, 160, "AddmmBackward0(f32[6,5])", 7),
        op(130, 150, "aten::sum(f32[6,5])"),
    ]
    assert kernel_costs(trace_of, ranges, launched(140)) == [(None, None)]


@pytest.mark.parametrize(
    ("kernel", "size"),
    [
        (f"{CAT}<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>", 2),
        (f"{CAT}_contig<at::native::(anonymous namespace)::OpaqueType<8u>, unsigned int, 3>", 8),
        ("void at::native::<unnamed>::CatArrayBatchedCopy_vectorized<at::native::<unnamed>::"
         "OpaqueType<(unsigned int)4>, unsigned int, (int)3, (int)128>", 4),
        (f"{CAT}<float, unsigned int, 2, 128, 1>(float*)", 4),
        (f"{CAT}<c10::Half, unsigned int, 2, 128, 1>(c10::Half*)", 2),
        (f"{CAT}<unsigned char, unsigned int, 2, 128, 1>", 1),
        (f"{CAT}<mystery, unsigned int, 2, 128, 1>", None),
        ("some_other_kernel<float, int>", None),
    ],
)  # fmt: skip
def test_a_kernel_s_name_tells_how_large_the_elements_of_a_list_are(trace_of, kernel, size):
    ranges = [op(0, 10, "aten::cat([?[3,4], ?[5,4]])")]
    found = kernel_costs(trace_of, ranges, launched(5, kernel))
    assert found == [(0, None if size is None else 2 * 32 * size)]


LISTS = "at::native::(anonymous namespace)::"
APPLY = f"void {LISTS}multi_tensor_apply_kernel<{LISTS}"


@pytest.mark.parametrize(
    ("call", "kernel", "expected"),
    [
        # read and written: 12 elements of 4 bytes
        ("aten::_foreach_mul_([?[3,2], ?[6]])",
         f"{APPLY}TensorListMetadata<1>, {LISTS}BinaryOpScalarFunctor<float, 1, 1, 0>, float>",
         (12, 2 * 12 * 4)),
        ("aten::_foreach_mul_([?[3,2], ?[6]])",
         f"{APPLY}TensorListMetadata<1>, {LISTS}BinaryOpScalarFunctor<c10::BFloat16, 1, 1, 0>>",
         (12, 2 * 12 * 2)),
        ("aten::_foreach_mul_([?[3,2], ?[6]])",
         "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::"
         "TensorListMetadata<(int)1>, at::native::<unnamed>::BinaryOpScalarFunctor<float, (int)1>>",
         (12, 2 * 12 * 4)),
        # p, m, v read and written and g read, 2 bytes each; two step counts of 4 bytes read
        ("aten::_fused_adam_([?[3,2], ?[6]], [?[3,2], ?[6]], [?[3,2], ?[6]], [?[3,2], ?[6]], [], "
         "[?[], ?[]]) {lr=0.1, amsgrad=false}",
         f"{APPLY}FusedOptimizerTensorListMetadata<4>, {LISTS}FusedAdamMathFunctor<c10::Half, 4>>",
         (12 * 12, 12 * 2 * 7 + 2 * 4)),
        ("aten::_foreach_mul_([?[3,2], ?[6]])", "some_kernel<float>", (12, None)),
    ],
)  # fmt: skip
def test_a_kernel_s_functor_tells_the_type_of_its_lists(trace_of, call, kernel, expected):
    assert kernel_costs(trace_of, [op(0, 10, call)], launched(5, kernel)) == [expected]


def test_parts_without_sizes_are_as_large_as_the_gradient_of_the_whole(trace_of):
    ranges = [
        op(0, 10, "aten::cat([?[?]])", 3),
        op(100, 200, "CatBackward0(f32[8,4])", 3),
    ]
    assert kernel_costs(trace_of, ranges, launched(5)) == [(0, 2 * 8 * 4 * 4)]


def collective(start: int, text: str, **fields: object) -> dict:
    return {**op(start, start + 8, text), "attrs": json.dumps(fields) if fields else None}


def wire(trace_of, world: int | None, *ranges: dict) -> list:
    pairs = [launched(one["start"] + 1, "ncclDevKernel") for one in ranges]
    calls, kernels = zip(*pairs, strict=True)
    processes = [{"process": 0, "pid": 1, "rank": 0, "world_size": world}]
    trace = trace_of(
        processes=processes, ranges=list(ranges), calls=list(calls), kernels=list(kernels)
    )
    return Profile(trace).kernels().sort("start")["bytes"].to_list()


REDUCE = "nccl:all_reduce(f32[100])"


def test_a_whole_and_its_share_tell_the_number_of_ranks(trace_of):
    gather = collective(0, "c10d::_allgather_base_(f32[80,5], f32[10,5])")
    scatter = collective(20, "c10d::_reduce_scatter_base_(f32[10,5], f32[80,5])")
    odd = collective(40, "c10d::_allgather_base_(f32[81,5], f32[10,5])")
    # 7 of 8 shares out, as many in
    assert wire(trace_of, None, gather, scatter, odd) == [2 * 1400, 2 * 1400, None]


def test_the_job_s_ranks_stand_for_a_group_s_where_nothing_contradicts(trace_of):
    assert wire(trace_of, 4, collective(0, REDUCE)) == [2 * 600]
    assert wire(trace_of, None, collective(0, REDUCE)) == [None]
    assert wire(trace_of, 1, collective(0, REDUCE)) == [0]


@pytest.mark.parametrize(
    "other",
    [
        collective(20, "c10d::_allgather_base_(f32[8,5], f32[4,5])"),
        collective(20, "nccl:broadcast(f32[7])", group_size=2, collective="broadcast"),
    ],
)
def test_a_smaller_group_anywhere_in_the_process_leaves_the_others_unknown(trace_of, other):
    assert wire(trace_of, 4, collective(0, REDUCE), other)[0] is None


def test_the_assumption_is_said(trace_of):
    from opscope.core import perf
    from opscope.core.rangetext import parse

    assumed, _ = perf.cost(parse("nccl:all_reduce(f32[100]) {world_size=4}"))
    told, _ = perf.cost(parse("nccl:all_reduce(f32[100]) {ranks=4}"))
    assert assumed.note == "the group is not recorded; all 4 ranks are assumed to take part"
    assert (told.note, told.bytes) == ("", assumed.bytes)


MUL = f"{APPLY}TensorListMetadata<1>, {LISTS}BinaryOpScalarFunctor<float, 1, 1, 0>, float>"
#: Blocks of 65,536 elements: 2 for [300,300], 1 for [300].
PARAMETERS = ["f32[300,300]", "f32[300]"] * 16
ELEMENTS = 16 * (300 * 300 + 300)


@pytest.mark.parametrize(
    ("gradients", "grids", "elements"),
    [
        (PARAMETERS, ["48,1,1"], ELEMENTS),
        (PARAMETERS, ["40,1,1", "8,1,1"], ELEMENTS),  # a kernel takes at most 320 blocks
        (PARAMETERS * 2, ["48,1,1"], ELEMENTS),  # gradients of two micro-batches
        (PARAMETERS[::2] * 3, ["48,1,1"], 24 * 300 * 300),
        (PARAMETERS, ["32,1,1"], None),  # half of them, or others
        (PARAMETERS, ["47,1,1"], None),
        (PARAMETERS[1::2] * 2, ["32,1,1"], None),  # as many blocks as a list of 32 scalars
        ([*PARAMETERS[1:], "f32[?,300]"], ["48,1,1"], None),
        ([], ["48,1,1"], None),
    ],
)
def test_lists_without_sizes_are_those_of_the_parameters_if_their_blocks_fit(
    trace_of, gradients, grids, elements
):
    """Kineto writes no sizes of more than 30 tensors; 4 bytes are read and written for each element."""
    nodes = [
        op(10 * n, 10 * n + 5, f'"torch::autograd::AccumulateGrad"({grad})', n)
        for n, grad in enumerate(gradients)
    ]
    kernels = [launched(2001 + n, MUL) for n in range(len(grids))]
    for (_, kernel), grid in zip(kernels, grids, strict=True):
        kernel["grid"] = grid
    found = kernel_costs(
        trace_of, [*nodes, op(2000, 2100, "aten::_foreach_mul_([?[?]])")], *kernels
    )
    flops, size = map(list, zip(*found, strict=True))
    if elements is None:
        assert (set(flops), set(size)) == ({None}, {None})
    else:
        assert (sum(flops), sum(size)) == (elements, 8 * elements)


FUSED = f"{APPLY}FusedOptimizerTensorListMetadata<4>, {LISTS}FusedAdamMathFunctor<float, 4>>"


@pytest.mark.parametrize(
    ("call", "flops", "size"),
    [
        # p, m and v are read and written, g is read; 32 step counts of 4 bytes are read
        ("_fused_adamw_([?[?]], [?[?]], [?[?]], [?[?]], [?[?]], [?[?]]) {amsgrad=false}",
         12 * ELEMENTS, 7 * 4 * ELEMENTS + 32 * 4),
        ("_fused_adamw_([?[?]], [?[?]], [?[?]], [?[?]], [?[?]], [?[?]]) {amsgrad=true}",
         13 * ELEMENTS, 9 * 4 * ELEMENTS + 32 * 4),
        ("_fused_adamw_([?[?]], [?[?]], [?[?]], [?[?]], [?[?]], [?[?]])", None, None),
        ("_fused_sgd_([?[?]], [?[?]], [?[?]]) {momentum=0.0}", 2 * ELEMENTS, 3 * 4 * ELEMENTS),
        ("_fused_sgd_([?[?]], [?[?]], [?[?]]) {momentum=0.9}", 4 * ELEMENTS, 5 * 4 * ELEMENTS),
        ("_fused_adagrad_([?[?]], [?[?]], [?[?]], [?[?]])", 5 * ELEMENTS, 5 * 4 * ELEMENTS + 32 * 4),
    ],
)  # fmt: skip
def test_a_fused_optimizer_has_lists_of_parameters_and_of_steps(trace_of, call, flops, size):
    nodes = [
        op(10 * n, 10 * n + 5, f'"torch::autograd::AccumulateGrad"({grad})', n)
        for n, grad in enumerate(PARAMETERS)
    ]
    kernel = launched(2001, FUSED)
    kernel[1]["grid"] = "48,1,1"
    ranges = [*nodes, op(2000, 2100, f"aten::{call}")]
    assert kernel_costs(trace_of, ranges, kernel) == [(flops, size)]
