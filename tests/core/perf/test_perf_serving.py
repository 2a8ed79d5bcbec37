"""What inference runs today: block-scaled, packed and grouped products, attention over a cache."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core import perf
from opscope.core.perf.cached import LENGTHS, WINDOW
from opscope.core.rangetext import parse
from opscope.core.schema import OpCall, TensorSpec
from opscope.readers.kineto.ops import op_text


def known(text):
    call = parse(text) if isinstance(text, str) else text
    cost, why = perf.cost(call)
    assert cost is not None, why
    return cost


@pytest.mark.parametrize(
    ("text", "m", "n", "k"),
    [
        # as SGLang recorded it on a B200: a, its scales, b, its scales, d
        ("sglang::deep_gemm_fp8_fp8_bf16_nt(f8e4m3fn[15434,2048], i32[15434,4], f8e4m3fn[12288,2048], i32[12288,4],"
         " bf16[15434,12288])", 15434, 12288, 2048),
        ("vllm::w8a8_triton_block_scaled_mm_func(f8e4m3fn[4149,5120], f8e4m3fn[34816,5120], f32[33,40], f32[272,40])",
         4149, 34816, 5120),
        ("_C::cutlass_scaled_mm_azp(bf16[4,8], i8[4,16], i8[16,8], f32[1], f32[8], i32[8])", 4, 8, 16),
        # two 4-bit elements to a byte on both sides
        ("_C::cutlass_scaled_fp4_mm(bf16[4,8], u8[4,16], u8[8,16], u8[128,4], u8[128,4], f32[1])", 4, 8, 32),
        ("sgl_kernel::fp8_scaled_mm(f8e4m3fn[4,16], f8e4m3fn[16,8], f32[4,1], f32[8,1])", 4, 8, 16),
        ("trtllm::cublas_scaled_mm(f8e4m3fn[4,16], f8e4m3fn[16,8], f32[1], f32[1])", 4, 8, 16),
        ("trtllm::fp8_block_scaling_gemm(f8e4m3fn[4,16], f8e4m3fn[8,16], f32[1,4], f32[1,1])", 4, 8, 16),
        ("trtllm::nvfp4_gemm(u8[4,16], u8[8,16], u8[128,4], u8[128,4], f32[1])", 4, 8, 32),
        ("vllm::flashinfer_mm_fp4(u8[4,16], u8[16,8], u8[128,4], u8[4,128], f32[1])", 4, 8, 32),
        ("vllm::rocm_unquantized_gemm(bf16[4,16], bf16[8,16])", 4, 8, 16),
        # eight 4-bit columns to an i32
        ("_C::awq_gemm(f16[4,64], i32[64,16], f16[1,128], i32[1,16])", 4, 128, 64),
        # eight 4-bit rows to an i32
        ("_C::gptq_gemm(f16[4,64], i32[8,128], i32[1,16], f16[1,128], i32[64])", 4, 128, 64),
        ("aiter::gemm_a4w4(u8[4,32], u8[128,32], u8[4,2], u8[128,2])", 4, 128, 64),
        ("_C::machete_mm(f16[4,64], i32[8,128]) -> f16[4,128]", 4, 128, 64),
        ("_C::marlin_gemm(f16[4,64], i32[4,256], f16[1,128], i32[132]) {size_m=4, size_n=128, size_k=64}", 4, 128, 64),
        ("_C::marlin_gemm(f16[4,64], i32[4,256], f16[1,128], i32[132]) -> f16[4,128]", 4, 128, 64),
        ("_C::gptq_marlin_gemm(f16[4,64], i32[4,256], f16[1,128], i32[132])", 4, 128, 64),
        ("_C::ggml_mul_mat_a8(u8[128,36], f16[4,64]) {type=2, row=128}", 4, 128, 64),
        ("sgl_kernel::qserve_w4a8_per_chn_gemm(i8[4,64], i8[128,32], f16[128], f16[4], f16[128], f16[4], f16[4,128])",
         4, 128, 64),
        # experts: twelve rows in all, whoever they belong to
        ("_C::cutlass_moe_mm(bf16[12,8], f8e4m3fn[12,16], f8e4m3fn[4,16,8], f32[12,1], f32[4,8], i32[4], i32[4,3])",
         12, 8, 16),
        ("_C::cutlass_fp4_group_mm(bf16[12,8], u8[12,16], u8[4,8,16], u8[128,4], u8[4,128,4], f32[4], i32[4,3])",
         12, 8, 32),
        ("deep_gemm_cpp::m_grouped_fp8_gemm_nt_contiguous(f8e4m3fn[12,16], f32[12,1], f8e4m3fn[4,8,16], f32[4,1,1],"
         " bf16[12,8], i32[12])", 12, 8, 16),
        ("_moe_C::moe_wna16_marlin_gemm(f16[6,64], i32[4,4,256]) {top_k=2, size_m=6, size_n=128, size_k=64}",
         12, 128, 64),
        ("_moe_C::moe_wna16_gemm(f16[6,64], f16[6,2,128], i32[4,128,8])", 12, 128, 64),
    ],
)  # fmt: skip
def test_a_products_flops(text, m, n, k):
    assert known(text).matrix_flops == 2 * m * n * k


@given(
    rows=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    n=st.integers(1, 8),
    k=st.integers(1, 8),
)
def test_a_grouped_product_is_the_sum_over_its_experts(rows, n, k):
    tokens, experts = sum(rows), len(rows)
    call = OpCall(
        "_C::cutlass_moe_mm",
        (
            TensorSpec("bf16", (tokens, n)),
            TensorSpec("i8", (tokens, k)),
            TensorSpec("i8", (experts, k, n)),
        ),
    )
    found = known(call)
    assert found.matrix_flops == sum(2 * each * n * k for each in rows)
    assert found.bytes_written == 2 * tokens * n
    # no more experts are read than there are rows to reach them
    assert found.bytes_read == tokens * k + min(experts, tokens) * n * k


def test_the_bytes_of_a_packed_weight_are_those_that_it_has():
    found = known("_C::awq_gemm(f16[4,64], i32[64,16], f16[1,128], i32[1,16]) -> f16[4,128]")
    assert found.bytes_read == 2 * 4 * 64 + 4 * 64 * 16 + 2 * 128 + 4 * 16
    assert found.bytes_written == 2 * 4 * 128
    without = known("_C::awq_gemm(f16[4,64], i32[64,16], f16[1,128], i32[1,16])")
    assert without.bytes is None
    assert "result's dtype" in without.bytes_reason


def test_experts_with_two_4_bit_weights_to_a_byte():
    full = known(
        "aiter::fused_moe_(bf16[16,64], bf16[8,256,64], bf16[8,64,128], f32[16,2], i32[16,2])"
    )
    half = known("aiter::fused_moe_(bf16[16,64], u8[8,256,32], u8[8,64,64], f32[16,2], i32[16,2])")
    assert full.flops == half.flops
    assert half.bytes_read < full.bytes_read


PREFILL = ("aiter::mha_batch_prefill(bf16[100,8,64], bf16[9,16,2,64], bf16[9,16,2,64], i32[{}], i32[{}], i32[7])"
           " {{max_seqlen_q=100, max_seqlen_k=112, is_causal=true}}")  # fmt: skip


def test_one_sequence_over_a_cache_is_as_long_as_the_longest():
    found = known(PREFILL.format(2, 2))
    live = sum(12 + i + 1 for i in range(100))
    assert found.matrix_flops == 4 * 8 * 100 * 112 * 64
    assert found.masked_flops == 4 * 8 * (100 * 112 - live) * 64
    assert found.bytes is None
    assert "which pages" in found.bytes_reason


def test_packed_keys_are_as_flash_attention_counts_them():
    text = "{}(bf16[200,8,64], bf16[200,2,64], bf16[200,2,64], i32[3], i32[3]) {{max_seqlen_q=100, max_seqlen_k=100}}"
    flash = known(text.format("flash_attn::_flash_attn_varlen_forward"))
    assert known(text.format("aiter::mha_varlen_fwd")) == flash
    assert known(text.format("_vllm_fa2_C::varlen_fwd")) == flash


@pytest.mark.parametrize(
    ("queries", "keys", "longest"),
    [(4, 90, "max_q=1, max_k=70"), (40, 90, "max_q=10, max_k=70"), (30, 80, "max_q=13, max_k=20")],
)
def test_one_length_on_one_side_gives_the_pairs_of_packed_sequences(queries, keys, longest):
    shapes = f"bf16[{queries},8,64], bf16[{keys},2,64], bf16[{keys},2,64], i32[5], i32[5]"
    text = f"flash_attn::_flash_attn_varlen_forward({shapes}) {{{{{longest}, causal={{}}}}}}"
    assert known(text.format("false")).matrix_flops == 4 * 64 * 8 * queries * keys // 4
    cost, why = perf.cost(parse(text.format("true")))
    assert (cost is None) == (queries > 4), "a causal mask leaves one query of each all its keys"
    assert cost is not None or "GFLOP, for 4 sequences" in why


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PREFILL.format(3, 3), "lengths are data"),
        ("_vllm_fa3_C::fwd(bf16[4,8,64], bf16[90,16,2,64], bf16[90,16,2,64], bf16[4,8,64], i32[5], i32[4])",
         "lengths are data"),
        ("vllm::unified_attention_with_output(bf16[4,8,64], bf16[4,2,64], bf16[4,2,64], bf16[4,8,64])",
         "lengths are data"),
        ("sgl_kernel::cutlass_mla_decode(bf16[4,128,512], bf16[4,128,512], bf16[4,128,64])", "lengths are data"),
        ("vllm::moe_forward(bf16[4,64], bf16[4,8])", "belong to the layer"),
        ("deep_gemm_cpp::fp8_m_grouped_gemm_nt_masked(f8e4m3fn[4,64,16])", "rows each expert has"),
        ("_C::machete_mm(f16[4,64], i32[8,128])", "hides N"),
        ("_C::marlin_gemm(f16[4,64], i32[4,256])", "size_n"),
        ("aiter::gemm_a8w8(f8e4m3fn[4,64], f8e4m3fn[128,48])", "not [M, K]"),
        ("sgl_kernel::sgl_per_tensor_quant_fp8(bf16[4,8], f8e4m3fn[4,8], f32[1])", "is_static"),
    ],
)  # fmt: skip
def test_what_only_data_tells_is_not_known(text, reason):
    cost, why = perf.cost(parse(text))
    assert cost is None
    assert reason in why


@pytest.mark.parametrize(
    ("text", "each", "read", "written"),
    [
        ("sgl_kernel::rmsnorm(bf16[4,8], bf16[4,8], bf16[8])", 4, 64 + 16, 64),
        ("flashinfer::fused_add_rmsnorm(bf16[4,8], bf16[4,8], bf16[8])", 5, 128 + 16, 128),
        ("_C::rms_norm_static_fp8_quant(f8e4m3fn[4,8], bf16[4,8], bf16[8], f32[1])", 7, 64 + 16 + 4, 32),
        ("_C::rms_norm_dynamic_per_token_quant(f8e4m3fn[4,8], bf16[4,8], bf16[8], f32[4])", 8, 64 + 16, 32 + 16),
        ("_C::per_token_group_fp8_quant(bf16[4,8], f8e4m3fn[4,8], f32[4,1])", 4, 64, 32 + 16),
        ("sgl_kernel::sgl_per_tensor_quant_fp8(bf16[4,8], f8e4m3fn[4,8], f32[1]) {is_static=true}", 3, 64 + 4, 32),
        ("sgl_kernel::sgl_per_tensor_quant_fp8(bf16[4,8], f8e4m3fn[4,8], f32[1]) {is_static=false}", 4, 64, 32 + 4),
        ("_C::scaled_fp4_quant(bf16[2,16], f32[1]) -> (u8[2,8], u8[128,4])", 4, 64, 16 + 512),
    ],
)  # fmt: skip
def test_layers_that_write_where_they_are_told(text, each, read, written):
    found = known(text)
    assert found.vector_flops == each * 32
    assert (found.bytes_read, found.bytes_written) == (read, written)


def test_the_residual_of_a_fused_norm_is_read_added_and_written():
    text = "_C::rms_norm_dynamic_per_token_quant(f8e4m3fn[4,8], bf16[4,8], bf16[8], f32[4]{})"
    alone, added = known(text.format("")), known(text.format(", bf16[4,8]"))
    assert added.vector_flops - alone.vector_flops == 32
    assert added.bytes - alone.bytes == 2 * 64


def custom(target, inputs, results):
    return parse(f'hlo::custom-call({inputs}) -> ({results}) {{target="{target}"}}')


Q, KV = "bf16[2,128,8,64]", "bf16[2,256,2,64]"
FORWARD = ("te_fused_attn_forward_ffi", f"{Q}, {KV}, {KV}, bf16[0], f32[0], u32[8], i32[2], i32[2]")


def test_transformer_engines_attention_is_that_of_its_shapes():
    found = known(custom(*FORWARD, f"{Q}, f32[2,8,128,1], u32[1,4], u8[0]"))
    assert found.matrix_flops == 4 * 2 * 8 * 128 * 256 * 64
    assert found.bytes_read == 2 * (2 * 128 * 8 * 64 + 2 * 2 * 256 * 2 * 64)
    assert "mask" in found.note
    one = custom(
        "te_fused_attn_forward_ffi", "bf16[2,128,3,8,64], bf16[0], bf16[0], bf16[0]",
        f"{Q}, f32[2,8,128,1]",
    )  # fmt: skip
    assert known(one).matrix_flops == 4 * 2 * 8 * 128 * 128 * 64
    two = custom(
        "te_fused_attn_forward_ffi", f"{Q}, bf16[2,256,2,2,64], bf16[0], bf16[0]",
        f"{Q}, f32[2,8,128,1]",
    )  # fmt: skip
    assert known(two).matrix_flops == found.matrix_flops
    back = custom(
        "te_fused_attn_backward_ffi",
        f"{Q}, {KV}, {KV}, bf16[0], f32[2,8,128,1], u32[1,4], {Q}, {Q}, i32[2], i32[2]",
        f"{Q}, {KV}, {KV}, bf16[0]",
    )
    assert known(back).matrix_flops == 2 * 5 * 64 * 2 * 8 * 128 * 256


@pytest.mark.parametrize("results", [f"{Q}, f32[2,128,8,1]", f"{Q}, f32[2,8,128,4]"])
def test_packed_sequences_of_transformer_engine_are_not_guessed(results):
    cost, why = perf.cost(custom(*FORWARD, results))
    assert cost is None
    assert "packed" in why


@given(
    m=st.lists(st.integers(1, 6), min_size=1, max_size=2), n=st.integers(1, 6),
    k=st.integers(1, 6), flips=st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
def test_transformer_engines_product_from_three_shapes(m, n, k, flips):
    lhs = (k, *m) if flips[0] else (*m, k)
    rhs = (n, k) if flips[1] else (k, n)
    call = OpCall(
        "hlo::custom-call",
        (TensorSpec("bf16", lhs), TensorSpec("f32", (0,)), TensorSpec("bf16", rhs)),
        (TensorSpec("bf16", (*m, n)),),
        (("target", "te_gemm_v2_ffi"),),
    )
    assert known(call).matrix_flops == 2 * math.prod(m) * n * k


def test_a_batch_of_products_is_not_taken_for_one():
    call = custom("te_gemm_ffi", "bf16[4,8,8], f32[0], bf16[4,8,8]", "bf16[4,8,8]")
    assert perf.cost(call)[0] is None


@pytest.mark.parametrize("order", ["max_seqlen_q={0}, max_seqlen_k={0}", "arg5={0}, arg6={0}"])
@pytest.mark.parametrize(
    "name", ["flash_attn::_flash_attn_varlen_forward", "aiter::fmha_v3_varlen_fwd"]
)
def test_unknown_lengths_have_bounds_that_every_split_keeps_to(name, order):
    tokens, longest, count = 10, 5, 3
    call = f"{name}(bf16[10,4,64], bf16[10,2,64], bf16[10,2,64], i32[4], i32[4]) {{{{{order}}}}}"
    _, why = perf.cost(parse(call.format(longest)))
    low, high = re.search(
        r"data that no trace records: (\S+) to (\S+) GFLOP, for 3 sequences", why
    ).groups()
    pairs = [
        sum(n * n for n in split)
        for split in itertools.product(range(longest + 1), repeat=count)
        if sum(split) == tokens
    ]
    each = 4 * 2 * (64 + 64)  # heads, and a multiply-add for each element of a key and of a value
    assert float(low) * 1e9 == pytest.approx(each * min(pairs))
    assert float(high) * 1e9 == pytest.approx(each * max(pairs))


def test_sequences_of_equal_length_are_known_by_the_place_of_the_longest():
    text = "aiter::fmha_v3_varlen_fwd(bf16[8,4,64], bf16[8,2,64], bf16[8,2,64], i32[3], i32[3]) {arg5=4, arg6=4}"
    assert known(text).matrix_flops == 2 * 4 * 4 * 4 * 2 * (64 + 64)


def test_a_weight_packed_in_tiles_tells_its_rows():
    found = known(
        "aten::_weight_int4pack_mm(bf16[16,4096], i32[512,32,32,4], bf16[32,4096,2]) {qGroupSize=128}"
    )
    assert found.matrix_flops == 2 * 16 * 4096 * (512 * 8)
    assert found.bytes_written == 2 * 16 * 4096
    cost, why = perf.cost(
        parse("aten::_weight_int4pack_mm(bf16[16,100], i32[512,32,32,4], bf16[32,4096,2])")
    )
    assert cost is None
    assert "does not fit" in why


def test_aiters_group_norm_is_that_of_pytorch():
    theirs = known(
        "aten::native_group_norm(f32[2,8,4,4], f32[8], f32[8]) {N=2, C=8, HxW=16, group=4, eps=1e-05}"
    )
    for text in (
        "aiter::_groupnorm_run(f32[2,8,4,4], f32[8], f32[8]) {num_groups=4}",
        "aiter::_groupnorm_run(f32[2,8,4,4], f32[64], f32[2,8,4,4], f32[8], f32[8]) {num_groups=4}",
    ):
        assert known(text).flops == theirs.flops
        assert known(text).bytes == 4 * (256 + 8 + 8 + 256)


@pytest.mark.parametrize("dtype", ["15", "bf16"])
def test_the_dtype_that_a_scaled_product_was_asked_for_is_that_of_its_result(dtype):
    """A trace has the argument and no result: c10::ScalarType's number, 15 for bf16."""
    named = dtype if dtype.isdigit() else f'"{dtype}"'
    text = f"aten::_scaled_mm(f8e4m3fn[16,32], f8e4m3fn[32,8], f32[], f32[]) {{out_dtype={named}}}"
    assert known(text).bytes == 16 * 32 + 32 * 8 + 4 + 4 + 2 * 16 * 8
    assert known(text).matrix_flops == 2 * 16 * 32 * 8


def test_sparse_latent_attention_counts_the_keys_that_are_chosen():
    """DeepSeek's sparse attention: 128 heads, latent keys of 576, values of 512, 2,048 keys for each query."""
    by_hand = 0
    for _ in range(3):  # queries
        for _ in range(128):  # heads
            by_hand += 2048 * (2 * 576 + 2 * 512)
    prefill = "sgl_kernel::sparse_prefill_fwd(bf16[3,128,576], bf16[9000,1,576], i32[3,1,2048]) {{{}=512}}"
    assert known(prefill.format("d_v")).matrix_flops == by_hand
    assert known(prefill.format("arg4")).matrix_flops == by_hand
    decode = (
        "sgl_kernel::fwd_kvcache_mla(bf16[3,1,128,576], u8[90,64,1,656], i32[3], i32[3,40], i32[132,8],"
        " i32[4]{}) {{head_size_v=512}}"
    )
    assert known(decode.format(", i32[3,1,2048]")).matrix_flops == by_hand
    dense = parse(decode.format(""))
    cost, why = perf.cost(dense)
    assert cost is None
    assert "lengths are data" in why
    sums = (0, 0, 0, 0, 0, 3, 3, 6000, 3, 6000)
    cost, why = perf.cost(OpCall(dense.name, dense.inputs, None, (*dense.params, (LENGTHS, sums))))
    assert cost.matrix_flops == 6000 * 128 * (2 * 576 + 2 * 512), why


#: Four requests that decode, each with 1,000 keys; a prefill of 600 and one of 400 tokens.
DECODING = (0, 0, 0, 0, 0, 4, 4, 4_000, 4, 4_000)
PREFILLING = (2, 1_000, 1_000, 520_000, 520_000, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "sums", "window", "matrix", "masked", "read", "written"),
    [
        # absorbed: each of 128 heads multiplies with latent keys of 576 and values of 512
        ("_flashmla_C::fwd_kvcache_mla(bf16[4,1,128,576], bf16[90,64,1,576]) {head_size_v=512}", DECODING, None,
            2 * 4_000 * 128 * (576 + 512), 0, 2 * (4 * 128 * 576 + 4_000 * 576), 2 * 4 * 128 * 512),
        # 8-bit queries and cache, a 16-bit result
        ("_flashmla_extension_C::fwd_kvcache_mla_fp8(f8e4m3fn[4,1,128,576], f8e4m3fn[90,64,1,576])"
            " {head_size_v=512}", DECODING, None,
            2 * 4_000 * 128 * (576 + 512), 0, 4 * 128 * 576 + 4_000 * 576, 2 * 4 * 128 * 512),
        # not absorbed: keys of 192 and values of 128; of q queries the i-th sees i keys
        ("vllm::unified_mla_attention_with_output(bf16[1000,128,192], bf16[1000,512], bf16[1000,1,64],"
            " bf16[1000,16384])", PREFILLING, None, 2 * 520_000 * 128 * 320,
            2 * (600 * 599 // 2 + 400 * 399 // 2) * 128 * 320,
            2 * (1_000 * 128 * 192 + 1_000 * 576), 2 * 1_000 * 128 * 128),
        # a window of 128 keys leaves 128 of each request's 1,000
        ("vllm::unified_attention(bf16[4,32,128], bf16[4,8,128], bf16[4,8,128])", DECODING, 128,
            2 * 4_000 * 32 * 256, 2 * 4 * (1_000 - 128) * 32 * 256,
            2 * (4 * 32 * 128 + 4 * 128 * 8 * 256), 2 * 4 * 32 * 128),
        # heads and their size in one dimension: the result shows the size
        ("vllm::unified_attention_with_output(bf16[4,4096], bf16[4,1024], bf16[4,1024], bf16[4,32,128])", DECODING,
            None, 2 * 4_000 * 32 * 256, 0, 2 * (4 * 32 * 128 + 4_000 * 8 * 256), 2 * 4 * 32 * 128),
        # pages of 16 tokens: the decoding requests alone, whatever else is in the step
        ("_C::paged_attention_v1(bf16[4,32,128], bf16[4,32,128], bf16[900,8,16,16,8], bf16[900,8,128,16], i32[4,63])",
            PREFILLING[:5] + DECODING[5:], None, 2 * 4_000 * 32 * 256, 0, 2 * (4 * 32 * 128 + 4_000 * 8 * 256),
            2 * 4 * 32 * 128),
        ("_C::paged_attention_v2(bf16[4,32,128], f32[4,32,2], f32[4,32,2], bf16[4,32,2,128], bf16[4,32,128],"
            " u8[900,8,8,16,16], u8[900,8,128,16])", DECODING, 128, 2 * 4 * 128 * 32 * 256, 0,
            2 * 4 * 32 * 128 + 4 * 128 * 8 * 256, 2 * 4 * 32 * 128),
    ],
)  # fmt: skip
def test_attention_over_a_cache_is_what_a_hand_counts(
    text, sums, window, matrix, masked, read, written
):
    call = parse(text)
    told = ((LENGTHS, sums), *(() if window is None else ((WINDOW, window),)))
    cost = known(OpCall(call.name, call.inputs, None, (*call.params, *told)))
    assert (cost.matrix_flops, cost.masked_flops) == (matrix, masked)
    assert (cost.bytes_read, cost.bytes_written) == (read, written)
    assert not cost.note.startswith(";")


@pytest.mark.parametrize("name", ["aiter::gemm_a4w4({0}[64,1024], {0}[512,1024]) -> bf16[64,512]",
                                  "_C::cutlass_scaled_fp4_mm(bf16[64,512], {0}[64,1024], {0}[512,1024])"])  # fmt: skip
def test_two_4_bit_elements_share_a_byte_and_unknown_elements_are_not_counted(name):
    packed = known(name.format("u8"))
    assert packed.matrix_flops == 2 * 64 * 512 * 2048
    assert set(packed.by_dtype) == {"f4e2m1"}
    cost, why = perf.cost(parse(name.format("?")))
    assert cost is None
    assert "one or two" in why


def test_pytorchs_product_of_4_bit_elements_has_two_in_a_byte():
    """PyTorch's profiler names their type Float4_e2m1fn_x2 and writes sizes of bytes."""
    dims, types = (
        b"[[64,1024],[1024,512],[64,128],[512,128]]",
        b'["%s","%s","c10::Float8_e4m3fn","c10::Float8_e4m3fn"]',
    )
    packed = op_text(
        "aten::_scaled_mm", dims, types.replace(b"%s", b"c10::Float4_e2m1fn_x2"), b"", b"", b""
    )
    assert known(packed).matrix_flops == 2 * 64 * 512 * 2048
    assert set(known(packed).by_dtype) == {"f4e2m1"}
    plain = op_text(
        "aten::_scaled_mm", dims, types.replace(b"%s", b"c10::Float8_e4m3fn"), b"", b"", b""
    )
    assert known(plain).matrix_flops == 2 * 64 * 512 * 1024


@pytest.mark.parametrize(
    "name", ["vllm::all_reduce", "_C_custom_ar::all_reduce", "trtllm::allreduce"]
)
def test_a_servers_collective_has_no_flops_and_the_bytes_of_its_kind(name):
    """An all-reduce of two ranks sends its buffer once."""
    found = known(f"{name}(bf16[4,512]) {{world_size=2}}")
    assert (found.flops, found.bytes_read) == (0, 4 * 512 * 2)
    assert perf.cost(parse("vllm::gemm_all_reduce(bf16[4,8], bf16[8,8])"))[0] is None
