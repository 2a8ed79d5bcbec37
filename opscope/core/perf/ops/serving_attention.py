"""Attention of serving libraries: paged keys, packed sequences, and lengths that are data.

For a batch with a cache, a trace records the number of new tokens but not each sequence's length. With
one sequence the longest length is its length, and the cost is known. Signatures: vLLM's
flash-attention ``flash_api_torch_lib.cpp``, SGLang ``sgl_kernel::fwd``, aiter ``ops/mha.py``.
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import cost, need, output, outputs, product, sizes, tensors
from opscope.core.schema import OpCall, TensorSpec

from .attention import attention_cost, live_pairs, tokens_first

LENGTHS: Final = "the cached keys' lengths are data that no trace records"
_PAGES: Final = "which pages are read is data that no trace records"


@op(
    "_vllm_fa2_C::varlen_fwd",
    "_vllm_fa3_C::fwd",
    "sgl_kernel::fwd",
    "aiter::mha_varlen_fwd",
    "aiter::fmha_v3_varlen_fwd",
    "aiter::wrapper_mha_varlen_fwd",
    "aiter::wrapper_fmha_v3_varlen_fwd",
    "aiter::mha_batch_prefill",
    "aiter::wrapper_mha_batch_prefill",
    family="attention",
    source="2·pairs·(d_qk + d_v) if the lengths are known: packed sequences of equal length, or one sequence",
    variants={"batch_prefill": "aiter::mha_batch_prefill aiter::wrapper_mha_batch_prefill"},
)
def packed_attention(call: OpCall) -> Cost:
    """Packed queries [T, H, d]; keys packed in the same way, or in the pages of a cache."""
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    if not _in_pages(call, q, k):
        every, live, d_qk, d_v = tokens_first(call, q, k, v)
        return attention_cost(call, q, k, v, (every, live), (d_qk, d_v))
    tokens, heads, dim = _packed_queries(q)
    keys = call.param("max_seqlen_k", call.param("max_k"))
    if _sequences(call) != 1 or not isinstance(keys, int) or isinstance(keys, bool):
        raise CannotKnow(LENGTHS)
    out = output(call)
    d_v = sizes(out)[-1] if out is not None and out.shape else dim
    every = heads * tokens * keys
    live = heads * live_pairs(call, tokens, keys, bottom_right=True)
    each = 2 * (dim + d_v)
    return cost(
        None,
        outputs(call) or [TensorSpec(q.dtype, (tokens, heads, d_v))],
        matrix=every * each,
        masked=(every - live) * each,
        vector=5 * live + tokens * heads * d_v,
        dtype=q.dtype,
        reason=_PAGES,
    )


def _in_pages(call: OpCall, q: TensorSpec, k: TensorSpec) -> bool:
    """Whether the keys are in pages: by their extra dimension, or by the op's name for one-token pages."""
    return len(k.shape) > len(q.shape) or variant(call, "batch_prefill")


def _packed_queries(q: TensorSpec) -> tuple[int, int, int]:
    shape = sizes(q)
    if len(shape) != 3:
        raise CannotKnow(f"the layout is not known: {list(shape)}")
    return shape[0], shape[1], shape[2]


def _sequences(call: OpCall) -> int | None:
    """Return the number of sequences, or None; the first integer vector has their starts and the end."""
    offsets = [t for t in tensors(call)[3:] if len(t.shape) == 1 and t.dtype in ("i32", "i64")]
    return product(sizes(offsets[0])) - 1 if offsets else None


_UNTOLD: Final = words(
    """
    vllm::unified_attention vllm::unified_attention_with_output
    vllm::unified_mla_attention vllm::unified_mla_attention_with_output
    sglang::unified_attention_with_output
    _C::sm100_cutlass_mla_decode sgl_kernel::cutlass_mla_decode vllm::rocm_aiter_mla_decode_fwd
    sgl_kernel::fwd_kvcache_mla _vllm_fa2_C::fwd_kvcache
    """
)


@op(*_UNTOLD, family="attention", source=f"null: {LENGTHS}")
def of_the_cache(call: OpCall) -> Cost:
    """Raise CannotKnow: the arguments are the new tokens; the layer has the cache."""
    raise CannotKnow(LENGTHS)


@op(
    "_C::merge_attn_states",
    "sgl_kernel::merge_state",
    "sgl_kernel::merge_state_v2",
    family="attention",
    source="3 per element of the result: two products by a weight and a sum",
    variants={"result_first": "_C::merge_attn_states"},
)
def merge_states(call: OpCall) -> Cost:
    """Merge two parts of one attention, each with the logarithm of its sum.

    The two exponentials and the division per row are not counted: they are small beside the products.
    """
    operands = tensors(call)
    parts = [t for t in operands if len(t.shape) == 3]
    if len(parts) < 3:
        raise CannotKnow("the trace has no shapes for the two parts and their result")
    result = parts[0] if variant(call, "result_first") else parts[2]
    reads = [t for t in operands if t is not result]
    return cost(reads, [result], vector=3 * product(sizes(result)), dtype=result.dtype)
