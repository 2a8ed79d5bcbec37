"""Families without a framework's counter to compare with: by loops, by hand, or by the law that binds them."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.perf.ops.communication import buffer_bytes, collective, wire_bytes
from opscope.core.perf.ops.linalg import lu, qr
from opscope.core.rangetext import parse
from opscope.core.schema import OpCall, TensorSpec

SMALL = st.integers(1, 5)


def known(text, **options):
    found, why = perf.cost(parse(text) if isinstance(text, str) else text, **options)
    assert found is not None, why
    return found


# --------------------------------------------------------------------------- communication


def ring_sent(kind, elements, ranks):
    """Elements that a rank sends in the ring algorithm, chunk by chunk."""
    chunk = elements // ranks
    steps = {"all_reduce": 2 * (ranks - 1)}.get(kind, ranks - 1)
    return sum(chunk for _ in range(steps))


@given(chunk=st.integers(1, 50), ranks=st.integers(2, 16),
       kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]))  # fmt: skip
def test_bytes_on_the_wire_are_those_of_the_ring(chunk, ranks, kind):
    assert wire_bytes(kind, chunk * ranks, ranks) == ring_sent(kind, chunk * ranks, ranks)


def test_communication():
    found = known("c10d::allreduce_([f32[1000]]) {group_size=8}")
    assert found.flops == 0
    assert (found.bytes_read, found.bytes_written) == (7000, 7000)
    gathered = known(
        "_c10d_functional::all_gather_into_tensor(bf16[100]) -> bf16[400] {group_size=4}"
    )
    assert gathered.bytes_read == 2 * 300
    alone = known("_c10d_functional::all_gather_into_tensor(bf16[100]) {group_size=4}")
    assert alone.bytes_read == gathered.bytes_read
    assert known("nccl:send(f32[10])").bytes == 40
    assert "ranks" in known("nccl:all_to_all(f32[10])").bytes_reason
    assert wire_bytes("all_reduce", 100, 1) == 0
    assert collective("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)") == "all_reduce"
    assert collective("ncclKernel_ReduceScatter_RING_SIMPLE") == "reduce_scatter"
    assert collective("volta_sgemm") is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("hlo::all-reduce(f32[100], f32[25]) -> (f32[100], f32[25]) {group_size=4}", 500),
        ("hlo::all-reduce-start(f32[100], f32[25]) {group_size=4}", 500),
        ("hlo::all-to-all(f32[25], f32[25], f32[25], f32[25]) {group_size=4}", 400),
        (
            "hlo::all-gather-start(f32[5], f32[2]) -> (f32[5], f32[2], f32[20], f32[8]) {group_size=4}",
            112,
        ),
        ("hlo::reduce-scatter(f32[20], f32[8]) -> (f32[5], f32[2]) {group_size=4}", 112),
        ("hlo::ragged-all-to-all(f32[8], f32[9], i32[4], i32[4]) {group_size=4}", 36),
    ],
)
def test_a_combined_collective_has_the_bytes_of_all_its_operands(text, size):
    assert buffer_bytes(parse(text)) == size
    kind = collective(text.partition("(")[0])
    assert known(text).bytes_read == wire_bytes(kind, size, 4)


# -------------------------------------------------------------------------- linear algebra


@given(n=st.integers(1, 12))
def test_factorisations_count_as_their_loops(n):
    """Multiply-adds of Gaussian elimination and of Cholesky's, to the leading term."""
    eliminated = sum(
        1 for k in range(n) for _ in itertools.product(range(k + 1, n), range(k + 1, n))
    )
    assert abs(lu(n, n) - 2 * eliminated) <= 2 * n * n
    found = known(OpCall("aten::linalg_cholesky", (TensorSpec("f64", (n, n)),))).matrix_flops
    halved = sum(1 for k in range(n) for i in range(k + 1, n) for _ in range(k + 1, i + 1))
    assert abs(found - 2 * halved) <= 2 * n * n


def test_linear_algebra():
    assert qr(10, 4) == 2 * 10 * 16 - 2 * 64 // 3
    assert qr(4, 10) == qr(10, 4)
    solve = known("aten::linalg_solve(f64[3,8,8], f64[3,8,2])")
    assert solve.matrix_flops == 3 * (lu(8, 8) + 2 * 64 * 2)
    triangular = known("aten::linalg_solve_triangular(f32[8,8], f32[8,5])")
    assert triangular.matrix_flops == 64 * 5
    assert known("aten::linalg_inv(c64[4,4])").matrix_flops == 4 * 2 * 64
    assert known("aten::matrix_power(f32[4,4]) {n=5}").matrix_flops == 3 * 2 * 64


# ---------------------------------------------------------------------------- the others


@given(log=st.integers(1, 10), batch=SMALL)
def test_fft(log, batch):
    """A radix-2 butterfly is 10 real operations: N/2·log2 N of them are 5·N·log2 N."""
    n = 2**log
    butterflies = batch * n // 2 * log
    found = known(OpCall("aten::fft_fft", (TensorSpec("c64", (batch, n)),)))
    assert found.vector_flops == 10 * butterflies
    real = known(OpCall("aten::fft_rfft", (TensorSpec("f32", (batch, n)),)))
    assert real.vector_flops == 5 * butterflies
    assert real.bytes_written == 8 * batch * (n // 2 + 1)


def test_einsum_by_equation():
    found = known('aten::einsum([f16[2,3,4], f16[2,4,5]]) {equation="bij,bjk->bik"}')
    assert found.matrix_flops == 2 * 2 * 3 * 4 * 5
    cost, why = perf.cost(parse("aten::einsum([f16[2,3], f16[3,4]])"))
    assert cost is None
    assert "equation" in why


@given(count=st.integers(1, 4), size=SMALL, decay=st.booleans(), amsgrad=st.booleans())
def test_fused_adam(count, size, decay, amsgrad):
    one = TensorSpec("f32", (size,))
    lists = ((one,) * count,) * 4
    params = (("weight_decay", 0.1 if decay else 0.0), ("amsgrad", amsgrad))
    found = known(OpCall("aten::_fused_adam_", lists, None, params))
    assert found.vector_flops == count * size * (12 + 2 * decay + amsgrad)
    assert found.bytes_read == 4 * 4 * count * size  # parameters, gradients, both moments
    assert found.bytes_written == 3 * 4 * count * size


def test_optimizers():
    assert known("aten::_fused_sgd_([f32[10]], [f32[10]]) {momentum=0.9}").vector_flops == 40
    named = (
        'bitsandbytes::optimizer_update_32bit(f32[10], f32[10], f32[10]) {optimizer_name="lion"}'
    )
    assert known(named).vector_flops == 90
    assert known("aten::_foreach_add_([f32[3], f32[4]], [f32[3], f32[4]])").vector_flops == 7
    assert known("torch.nn.utils.clip_grad_norm_([f32[3], f32[4]])").vector_flops == 21


@given(bags=SMALL, per_bag=SMALL, width=SMALL, weighted=st.booleans())
def test_embedding_bag(bags, per_bag, width, weighted):
    additions = bags * (per_bag - 1) * width
    products = bags * per_bag * width if weighted else 0
    count = TensorSpec("i64", (bags * per_bag,))
    inputs = [TensorSpec("f32", (1000, width)), count, TensorSpec("i64", (bags,))]
    if weighted:
        inputs.append(TensorSpec("f32", (bags * per_bag,)))
    found = known(OpCall("aten::_embedding_bag", tuple(inputs), None, (("mode", 0),)))
    assert found.vector_flops == additions + products


LOOKUP = (
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function(f32[0], f32[96000], f32[0], f32[0,0],"
    " i32[1], i64[1], i32[2], i64[2], i64[500], i64[129], {}i32[0], f32[1000], f32[0], i32[1], i64[1])"
)
NODE = "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"


def test_fbgemm_lookups():
    plain = known(LOOKUP.format(""))
    assert plain.vector_flops == 500 * 96
    assert not plain.note
    assert plain.bytes_written == 4 * 128 * 96
    weighted = known(LOOKUP.format("f32[500], "))
    assert weighted.vector_flops == 2 * 500 * 96
    node = OpCall(NODE, (TensorSpec("f32", (128, 96)),))
    assert perf.cost(node)[0] is None
    back = known(node, forward=parse(LOOKUP.format("")))
    assert back.vector_flops == 500 * 96 + 4 * 500 * 96
    assert back.note
    # tables of several widths: the mean is taken, and said
    several = LOOKUP.replace("i32[1], i64[1], i32[2], i64[2]", "i32[2], i64[2], i32[3], i64[3]")
    assert "mean" in known(several.format("")).note


def test_experts_and_rotary():
    call = "vllm::inplace_fused_experts(bf16[16,64], bf16[8,256,64], bf16[8,64,128], f32[16,2], i32[16,2])"
    found = known(call)
    assert found.matrix_flops == 2 * 16 * 2 * (256 * 64 + 64 * 128)
    assert set(found.by_dtype) == {"bf16"}
    assert (
        known(
            "_C::rotary_embedding(i64[16], bf16[16,8,64], bf16[16,2,64], bf16[512,64])"
        ).vector_flops
        == 3 * 16 * 10 * 64
    )


@pytest.mark.parametrize(
    ("dtype", "flag", "products"),
    [
        ("f8e4m3fn", "", "f8e4m3fn"),
        ("f8e4m3fnuz", "", "f8e4m3fnuz"),
        ("i8", " {use_int8_w8a8=true}", "i8"),
        ("i8", " {use_int8_w8a16=true}", "bf16"),
        ("i8", "", "?"),
    ],
)
def test_narrow_experts_multiply_in_their_dtype_and_read_their_scales(dtype, flag, products):
    """Three tokens of two experts each: six of eight experts, each with its scales."""
    call = f"sglang::outplace_fused_experts(bf16[3,64], {dtype}[8,256,64], {dtype}[8,64,128], f32[3,2], i32[3,2], f32[8,2,1], f32[8,1,1])"
    found = known(call + flag)
    assert set(found.by_dtype) == {products}
    weights = 6 * (256 * 64 + 64 * 128)
    scales = 6 * (2 + 1) * 4
    assert found.bytes_read == 3 * 64 * 2 + 2 * (3 * 2 * 4) + weights + scales


def test_interpolation():
    out = "f32[1,3,16,16]"
    assert known(f"aten::upsample_nearest2d(f32[1,3,8,8]) -> {out}").flops == 0
    assert known(f"aten::upsample_bilinear2d(f32[1,3,8,8]) -> {out}").flops == 7 * 768
    assert known(f"aten::upsample_bicubic2d(f32[1,3,8,8]) -> {out}").flops == 35 * 768
    grown = known("aten::upsample_bilinear2d(f32[1,3,8,8]) {output_size=[16, 16]}")
    assert grown.flops == 7 * 768
    assert known("aten::grid_sampler_2d(f32[1,3,8,8], f32[1,4,4,2])").flops == 7 * 48 + 14 * 16


def test_sorting():
    assert known("aten::sort(f32[4,16]) {dim=-1}").flops == 4 * 16 * 4
    assert known("aten::topk(f32[4,16]) {k=2}").flops == 64 + 4 * 2
    assert known("aten::bucketize(f32[10], f32[7])").flops == 30


def test_a_product_in_backward_without_shapes_follows_its_forward():
    forward = parse("aten::addmm(f32[5], f32[2,3], f32[3,5])")
    for name in ("mm", "aten::mm"):
        assert known(OpCall(name), forward=forward).matrix_flops == 2 * 2 * 3 * 5
    softmax = parse("aten::log_softmax(f32[4,5]) {dim=1}")
    found = known(OpCall("aten::_log_softmax_backward_data"), forward=softmax)
    assert found.vector_flops == 4 * 20 - 4
    assert "forward" in found.note


@given(shape=st.lists(SMALL, min_size=1, max_size=4))
def test_layer_norm_counts_its_definition(shape):
    """Over the last dimension: mean n, subtract n, square n, add n, scale n, weight n, bias n."""
    x = TensorSpec("f32", tuple(shape))
    weight = TensorSpec("f32", tuple(shape[-1:]))
    found = known(OpCall("aten::layer_norm", (x, weight, weight), None, (("eps", 1e-5),)))
    assert found.vector_flops == 7 * math.prod(shape)
