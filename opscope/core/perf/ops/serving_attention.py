"""Attention of serving libraries: paged keys, packed sequences, and lengths that are data.

For a batch with a cache, a trace records the number of new tokens but not each sequence's length. With one
sequence the longest length is its length, and the cost is known; else the sums over the requests in the
server's step give it (``perf.cached``). Signatures: vLLM's flash-attention ``flash_api_torch_lib.cpp``,
SGLang ``sgl_kernel::fwd`` and ``flashmla_extension.cc``, FlashMLA as vLLM builds it, aiter ``ops/mha.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from opscope.core.perf.cached import HEAD, WINDOW, lengths_of
from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    Span,
    cost,
    int_param,
    need,
    output,
    outputs,
    product,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import DTYPE_BITS, OpCall, TensorSpec

from .attention import attention_cost, live_pairs, tokens_first

#: The reason for an attention whose step gives no sums.
LENGTHS: Final = "the cached keys' lengths are data that no trace records"
_FLAT: Final = (
    "heads and their size are one dimension: the cost needs the size of a head, from the cache's shape or"
    " --model-config, and the sums of the server's step"
)
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
    if lengths_of(call) is not None:
        return over_cache(call, _paged(call, q, k, v))
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
    """Return the number of sequences, or None; the first integer vector has the start of each sequence,
    and the end of the last."""
    offsets = [t for t in tensors(call)[3:] if len(t.shape) == 1 and t.dtype in ("i32", "i64")]
    return product(sizes(offsets[0])) - 1 if offsets else None


#: Layouts of the arguments of attention whose cache belongs to the layer, or whose lengths are data.
_LAYOUTS: Final = {
    "plain": words(
        """
        vllm::unified_attention vllm::unified_attention_with_output
        sglang::unified_attention_with_output
        """
    ),
    "latent": words("vllm::unified_mla_attention vllm::unified_mla_attention_with_output"),
    "cutlass": words("_C::sm100_cutlass_mla_decode sgl_kernel::cutlass_mla_decode"),
    "absorbed": words(
        """
        vllm::rocm_aiter_mla_decode_fwd sgl_kernel::fwd_kvcache_mla sgl_kernel::fwd_kvcache_mla_fp8
        sgl_kernel::dense_decode_fwd flash_mla::fwd_kvcache_mla _flashmla_C::fwd_kvcache_mla
        _flashmla_extension_C::fwd_kvcache_mla_fp8
        """
    ),
    "paged": ("_vllm_fa2_C::fwd_kvcache",),
}
_LAYOUT: Final = {name: layout for layout, names in _LAYOUTS.items() for name in names}


@op(
    *_LAYOUT,
    family="attention",
    source="2·Σqk·H·(d_qk + d_v) by the sums that the server's step tells; the keys and values of Σk tokens "
    f"are read. Without a step null: {LENGTHS}",
)
def of_the_cache(call: OpCall) -> Cost:
    """Raise CannotKnow if the sums of a step are not known: the arguments have only the new tokens, because
    the cache belongs to the layer. FlashMLA's op with indices attends only to the keys of these indices.

    Latent attention (MLA): a prefill expands keys and values, a decode works on the latent vectors, whose
    products with the two projections are ops of their own.
    """
    if _LAYOUT[call.name] == "absorbed" and (chosen := _keys_of_indices(call)):
        return _sparse(call, chosen)
    if lengths_of(call) is None:
        ranks = {len(tensor.shape) for tensor in tensors(call)}
        raise CannotKnow(_FLAT if _LAYOUT[call.name] == "plain" and ranks == {2} else LENGTHS)
    return over_cache(call, _HEADS[_LAYOUT[call.name]](call))


class Heads(NamedTuple):
    """Sizes of one attention: its heads, the sizes of a query and of a value in prefill and in decode, the
    elements per cached token, and the tensors of queries, keys and result."""

    heads: int
    prefill: tuple[int, int]
    decode: tuple[int, int]
    cached: int
    q: TensorSpec
    keys: TensorSpec
    out: TensorSpec | None


def _plain(call: OpCall) -> Heads:
    """Queries [T, H, d], new keys and values [T, Hkv, d]; each may be [T, H·d]."""
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    for tensor in (q, k, v):
        if len(tensor.shape) not in (2, 3):
            raise CannotKnow(f"the layout is not known: {list(tensor.shape)}")
    size = next((sizes(t)[2] for t in (q, k, *tensors(call)) if len(t.shape) == 3), None)
    each = int_param(call, HEAD, 0) if size is None else size
    heads, dim = _heads(q, each)
    kv_heads, d_k = _heads(k, each)
    d_v = product(sizes(v)[1:]) // max(kv_heads, 1)
    return Heads(heads=heads, prefill=(dim, d_v), decode=(dim, d_v), cached=kv_heads * (d_k + d_v),
                 q=q, keys=k, out=None)  # fmt: skip


def _heads(tensor: TensorSpec, each: int) -> tuple[int, int]:
    """Return the heads of [T, H, d] or [T, H·d] and their size, which is ``each`` for the latter."""
    shape = sizes(tensor)
    if len(shape) == 3:
        return shape[1], shape[2]
    if not each or shape[1] % each:
        raise CannotKnow(_FLAT)
    return shape[1] // each, each


def _paged(call: OpCall, q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Heads:
    """Queries [T, H, d] or [B, S, H, d], pages of keys and values [pages, page, Hkv, d]."""
    shape, pages = sizes(q), sizes(k)
    if len(shape) not in (3, 4) or len(pages) < 3:
        raise CannotKnow(f"the layout is not known: {list(shape)}")
    d_v = sizes(v)[-1]
    return Heads(heads=shape[-2], prefill=(shape[-1], d_v), decode=(shape[-1], d_v),
                 cached=pages[-2] * (pages[-1] + d_v), q=q, keys=k, out=None)  # fmt: skip


def _latent(call: OpCall) -> Heads:
    """Queries [T, H, d], latent vectors [T, L], rotary keys [T, 1, r], and the result [T, H·d_v], if any."""
    q, latent, rotary = (
        need(call, n, label) for n, label in enumerate(("query", "latent", "rotary key"))
    )
    _, heads, dim = _packed_queries(q)
    rank, turned = sizes(latent)[-1], sizes(rotary)[-1]
    results = [t for t in tensors(call)[3:] if t.shape and t.shape[0] == q.shape[0]]
    d_v = product(sizes(results[0])[1:]) // max(heads, 1) if results else dim - turned
    return Heads(heads=heads, prefill=(dim, d_v), decode=(rank + turned, rank), cached=rank + turned,
                 q=q, keys=latent, out=results[0] if results else None)  # fmt: skip


def _cutlass(call: OpCall) -> Heads:
    """The result, queries [B, H, L] and their rotary part [B, H, r], pages [pages, page, L + r]."""
    out, q, rotary, pages = (need(call, n, "operand") for n in range(4))
    heads, rank, turned = sizes(q)[-2], sizes(q)[-1], sizes(rotary)[-1]
    sides = (rank + turned, rank)
    return Heads(
        heads=heads, prefill=sides, decode=sides, cached=rank + turned, q=q, keys=pages, out=out
    )


def _absorbed(call: OpCall) -> Heads:
    """Queries [B, H, L + r] or [B, S, H, L + r], pages [pages, page, 1, L + r], with the scales in them if
    pages are bytes; values have L."""
    q, pages = need(call, 0, "query"), need(call, 1, "cache")
    heads, dim = sizes(q)[-2], sizes(q)[-1]
    results = [t for t in tensors(call)[2:] if t.shape[:-1] == q.shape[:-1] and len(t.shape) > 2]
    rank = sizes(results[0])[-1] if results else _value_size(call)
    return Heads(heads=heads, prefill=(dim, rank), decode=(dim, rank), cached=sizes(pages)[-1], q=q,
                 keys=pages, out=results[0] if results else None)  # fmt: skip


def _value_size(call: OpCall) -> int:
    """Return the size of a value of FlashMLA's. Without its name, the argument is found by position: after
    queries, cache and, in some versions, the values; in sparse ops after the scale."""
    named = [call.param(name) for name in ("head_size_v", "d_v", "arg2", "arg3", "arg4", "arg10")]
    size = next(
        (each for each in named if isinstance(each, int) and not isinstance(each, bool)), None
    )
    if size is None:
        raise CannotKnow("the trace does not record the size of a value")
    return size


@op(
    "sgl_kernel::sparse_prefill_fwd",
    "sgl_kernel::sparse_decode_fwd",
    "_flashmla_C::sparse_prefill_fwd",
    "_flashmla_C::sparse_decode_fwd",
    family="attention",
    source="2·Nq·H·(keys chosen for a query)·(d_qk + d_v), places that choose no key included",
)
def sparse(call: OpCall) -> Cost:
    """Queries [T, H, d] or [B, S, H, d], the cache, and the indices of the keys that each attends to."""
    return _sparse(call, _keys_of_indices(call))


def _keys_of_indices(call: OpCall) -> int:
    """Return how many keys the indices [.., .., keys] choose for all queries, 0 without indices."""
    indices = [t for t in tensors(call)[2:] if len(t.shape) == 3 and t.dtype in ("i32", "i64")]
    return sum(product(sizes(each)) for each in indices)


def _sparse(call: OpCall, chosen: int) -> Cost:
    q = need(call, 0, "query")
    heads, dim = sizes(q)[-2:]
    d_v = _value_size(call)
    written = outputs(call) or [TensorSpec(q.dtype, (*sizes(q)[:-1], d_v))]
    return cost(
        None,
        written,
        matrix=2 * heads * chosen * (dim + d_v),
        vector=5 * heads * chosen + product(sizes(q)[:-1]) * d_v,
        dtype=q.dtype,
        reason=_PAGES,
    )


_HEADS: Final[dict[str, Callable[[OpCall], Heads]]] = {
    "plain": _plain,
    "latent": _latent,
    "cutlass": _cutlass,
    "absorbed": _absorbed,
    "paged": lambda call: _paged(call, *(need(call, n, "operand") for n in range(3))),
}
_WINDOWED: Final = "a window of {window:,} keys leaves at most the pairs that are not masked"
_NO_WINDOW: Final = (
    "all cached keys are assumed to be read: a sliding window is no argument of the call"
)
_CACHE_TYPE: Final = "the cache is assumed to have the dtype of the new keys"


def over_cache(call: OpCall, heads: Heads, own_window: int | None = None) -> Cost:
    """Return the cost of a step's requests; a window (``WINDOW``) masks pairs and saves reads.

    ``own_window``: the window of a call that has it and the cache among its arguments; 0: it has none.
    """
    phases = lengths_of(call)
    assert phases is not None
    window = int_param(call, WINDOW, -1) if own_window is None else own_window
    is_windowed = window > 0
    matrix = masked = vector = read = written = 0
    for lengths, (d_qk, d_v) in zip(phases, (heads.prefill, heads.decode), strict=True):
        live = lengths.within(window) if is_windowed else lengths.live
        each = 2 * heads.heads * (d_qk + d_v)
        matrix += lengths.qk * each
        masked += (lengths.qk - live) * each
        vector += heads.heads * (5 * live + lengths.queries * d_v)
        read += lengths.keys_within(window) if is_windowed else lengths.keys
        written += heads.heads * lengths.queries * d_v
    dtype = call.param("cache_dtype") if own_window is None else heads.keys.dtype
    note = _WINDOWED.format(window=window) if is_windowed else _NO_WINDOW
    notes = ["" if window == 0 else note, "" if isinstance(dtype, str) else _CACHE_TYPE]
    # kernels with 8-bit queries write 16-bit results
    result = Span("bf16", written) if DTYPE_BITS.get(heads.q.dtype) == 8 else span(heads.q, written)
    return cost(
        [heads.q, Span(dtype if isinstance(dtype, str) else heads.keys.dtype, read * heads.cached)],
        [heads.out if heads.out is not None else result],
        matrix=matrix,
        masked=masked,
        vector=vector,
        dtype=heads.q.dtype,
        note="; ".join(filter(None, notes)),
    )


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
