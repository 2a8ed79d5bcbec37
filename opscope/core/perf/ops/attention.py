"""Scaled dot-product attention: 2·(d_qk + d_v) FLOPs for each pair of a query and a key.

The matrix FLOPs count every pair, as torch.utils.flop_counter and the usual MFU do. ``masked_flops``
has those that a causal mask or a window makes unnecessary. Backward recomputes the scores and
computes four more products: 2·(3·d_qk + 2·d_v) per pair. Softmax is five vector FLOPs per pair: scale,
maximum, subtract, exponential, sum (and one division per output element).
"""

from __future__ import annotations

from dataclasses import replace

from opscope.core.perf.cached import WINDOW, lengths_of
from opscope.core.perf.registry import CannotKnow, Cost, backward_of, op, variant
from opscope.core.perf.shapes import (
    Part,
    cost,
    int_param,
    need,
    outputs,
    product,
    promote,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

_SOURCE = "2·B·H·Nq·Nk·(d_qk + d_v) (torch.utils.flop_counter; masked pairs included)"
_BACK = "2·B·H·Nq·Nk·(3·d_qk + 2·d_v), scores recomputed (torch.utils.flop_counter)"


def causal_pairs(queries: int, keys: int, bottom_right: bool = False) -> int:
    """The number of pairs (i, j) with j ≤ i; with ``bottom_right``, with j ≤ i + keys − queries."""
    return _pairs_below(queries, keys, keys - queries if bottom_right else 0)


def _pairs_below(queries: int, keys: int, shift: int) -> int:
    """The number of pairs (i, j) with j ≤ i + shift."""
    # query i sees the keys 0 … i + shift: at least none, at most all
    first = min(max(0, -shift), queries)
    full = max(min(queries, keys - shift), first)
    rising = full - first
    low = first + shift + 1
    return rising * low + rising * (rising - 1) // 2 + (queries - full) * keys


def window_pairs(queries: int, keys: int, left: int, right: int, shift: int = 0) -> int:
    """The number of pairs with i + shift − left ≤ j ≤ i + shift + right; a negative bound is no bound."""
    upper = _pairs_below(queries, keys, shift + right) if right >= 0 else queries * keys
    return upper - (_pairs_below(queries, keys, shift - left - 1) if left >= 0 else 0)


def attention_cost(
    call: OpCall,
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    pairs: tuple[int, int],
    dims: tuple[int, int],
    *,
    backward: bool = False,
    writes: list[TensorSpec] | None = None,
    grads: tuple[TensorSpec, ...] = (),
) -> Cost:
    """Return the cost from ``pairs`` (all, unmasked; over heads and batch) and ``dims`` (d_qk, d_v)."""
    every, live = pairs
    d_qk, d_v = dims
    each = 2 * (3 * d_qk + 2 * d_v) if backward else 2 * (d_qk + d_v)
    rows = product(sizes(q)) // max(d_qk, 1)
    # backward's softmax: recompute 4 (without dropout), dS = P ∘ (dP − D) 2, scale 1
    vector = live * (7 if backward else 5) + (2 if backward else 1) * rows * d_v
    reads = [q, k, v, *grads]
    reads += [t for t in tensors(call)[len(reads) :] if t not in reads]
    if writes is None:
        writes = outputs(call)
    if writes is None and not backward:
        written: list[Part] = [span(q, rows * d_v)]
    elif writes is None:
        written = [q, k, v]
    else:
        written = list(writes)
    return cost(
        reads,
        written,
        matrix=every * each,
        masked=(every - live) * each,
        vector=vector,
        dtype=promote([q, k, v]),
    )


def _heads_first(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> tuple[int, int, int, int, int]:
    """Return (batch·heads of q, Nq, Nk, d_qk, d_v) of [B, H, N, d] tensors; k and v may have fewer heads.

    Raises CannotKnow if the shapes are not those of an attention.
    """
    qs, ks, vs = sizes(q), sizes(k), sizes(v)
    if min(len(qs), len(ks), len(vs)) < 2:
        raise CannotKnow(f"the shapes are not an attention's: {list(qs)}, {list(ks)}")
    if qs[-1] != ks[-1] or ks[-2] != vs[-2]:
        raise CannotKnow(
            f"the sizes of queries, keys and values do not fit: {list(qs)}, {list(ks)}"
        )
    if len(qs) > 2 and len(ks) > 2 and qs[-3] % (ks[-3] or qs[-3] + 1):
        raise CannotKnow("the number of query heads is not a multiple of the number of key heads")
    return product(qs[:-2]), qs[-2], ks[-2], qs[-1], vs[-1]


def live_pairs(call: OpCall, queries: int, keys: int, bottom_right: bool) -> int:
    """The number of pairs of one head that remain under the call's window or causal mask."""
    left, right = call.param("window_size_left"), call.param("window_size_right")
    if isinstance(left, int) or isinstance(right, int):
        low = left if isinstance(left, int) and not isinstance(left, bool) else -1
        high = right if isinstance(right, int) and not isinstance(right, bool) else -1
        if low >= 0 or high >= 0:
            return window_pairs(queries, keys, low, high, keys - queries)
    if call.param("is_causal", call.param("causal", False)) is True:
        return causal_pairs(queries, keys, bottom_right)
    kind = call.param("custom_mask_type", 0)
    # efficient attention: 1 top left, 2 bottom right
    if kind in (1, 2) and not isinstance(kind, bool):
        return causal_pairs(queries, keys, kind == 2)
    return queries * keys


@op(
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_attention_math",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_scaled_dot_product_attention_math_for_mps",
    "aten::_triton_scaled_dot_attention",
    "aten::_fused_sdp_choice",
    "higher_order::flex_attention",
    "flex_attention",
    family="attention",
    source=_SOURCE,
    variants={
        "fused_sdp_choice": "aten::_fused_sdp_choice",
        "flex": "higher_order::flex_attention flex_attention",
        "flash": "*_flash_attention*",
    },
)
def sdpa(call: OpCall) -> Cost:
    """[B, H, N, d] operands; keys and values may have fewer heads (grouped-query)."""
    if variant(call, "fused_sdp_choice"):
        return Cost()
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    heads, queries, keys, d_qk, d_v = _heads_first(q, k, v)
    if variant(call, "flex") and call.param("sparsity") is None and len(tensors(call)) > 3:
        # the block mask's tensors are inputs, but their values (the full blocks) are not recorded
        live = queries * keys
    else:
        live = live_pairs(call, queries, keys, bottom_right=False)
    pairs = heads * queries * keys, heads * live
    writes = None
    if outputs(call) is None and variant(call, "flash"):  # the sums of the softmax are kept, too
        sums = TensorSpec("f64" if q.dtype == "f64" else "f32", (*sizes(q)[:-1],))
        writes = [TensorSpec(q.dtype, (*sizes(q)[:-1], d_v)), sums]
    return attention_cost(call, q, k, v, pairs, (d_qk, d_v), writes=writes)


@op(
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward",
    family="attention",
    source=_BACK,
)
def sdpa_backward(call: OpCall) -> Cost:
    """The output gradient comes first, then query, key, value."""
    grad, q, k, v = (need(call, n, "operand") for n in range(4))
    heads, queries, keys, d_qk, d_v = _heads_first(q, k, v)
    pairs = heads * queries * keys, heads * live_pairs(call, queries, keys, bottom_right=False)
    return attention_cost(call, q, k, v, pairs, (d_qk, d_v), backward=True, grads=(grad,))


@op(
    "higher_order::flex_attention_backward",
    "flex_attention_backward",
    family="attention",
    source=_BACK,
)
def flex_backward(call: OpCall) -> Cost:
    """Query, key, value come first. The mask's blocks are not recorded, so every pair counts."""
    q, k, v = (need(call, n, "operand") for n in range(3))
    heads, queries, keys, d_qk, d_v = _heads_first(q, k, v)
    pairs = heads * queries * keys, heads * queries * keys
    return attention_cost(call, q, k, v, pairs, (d_qk, d_v), backward=True)


def tokens_first(
    call: OpCall, q: TensorSpec, k: TensorSpec, v: TensorSpec, *, backward: bool = False
) -> tuple[int, int, int, int]:
    """Return (all pairs, unmasked pairs, d_qk, d_v) of [B, N, H, d] or packed [T, H, d] operands.

    Raises CannotKnow for another layout, or, with bounds of the FLOPs, if the packed sequences' lengths are
    unknown.
    """
    qs, ks, vs = sizes(q), sizes(k), sizes(v)
    if len(qs) == 4 and len(ks) == 4:
        batch, queries, heads, d_qk = qs
        if batch == 1 and _pack(call):
            return _varlen(call, qs[1:], ks[1:], vs[-1], backward)
        keys = ks[1]
        live = live_pairs(call, queries, keys, bottom_right=True)
        return batch * heads * queries * keys, batch * heads * live, d_qk, vs[-1]
    if len(qs) == 3 and len(ks) == 3:
        return _varlen(call, qs, ks, vs[-1], backward)
    raise CannotKnow(f"the layout is not known: {list(qs)}, {list(ks)}")


def _pack(call: OpCall) -> bool:
    return any(len(t.shape) == 1 and t.dtype in ("i32", "i64") for t in tensors(call)[3:])


def _varlen(
    call: OpCall, q: tuple[int, ...], k: tuple[int, ...], d_v: int, backward: bool
) -> tuple[int, int, int, int]:
    """Return what ``tokens_first`` does, for packed sequences of equal length or a single sequence.

    The offsets are data that no trace records. All sequences have the longest length if that length times
    their number is the number of tokens; it is enough if this is so of either the queries or the keys, for
    example if each sequence has one query. Raises CannotKnow otherwise.
    """
    offsets = [t for t in tensors(call)[3:] if len(t.shape) == 1 and t.dtype in ("i32", "i64")]
    tokens, heads, d_qk = q[-3], q[-2], q[-1]
    keys = k[-3]
    if not tokens or not keys:  # no pairs, whatever the lengths are
        return 0, 0, d_qk, d_v
    if not offsets:
        raise CannotKnow("the trace does not record the lengths of the packed sequences")
    count = sizes(offsets[0])[0] - 1
    if count < 1:
        raise CannotKnow("the trace does not record the lengths of the packed sequences")
    # in an op without a schema they are after its five tensors
    at = ("arg5", "arg6") if len(tensors(call)) == 5 else ("", "")
    longest_q = call.param("max_q", call.param("max_seqlen_q", call.param(at[0])))
    longest_k = call.param("max_k", call.param("max_seqlen_k", call.param(at[1])))
    if count == 1:
        longest_q, longest_k = tokens, keys
    if longest_q == 1 and longest_k is not None and tokens == count:
        longest_q = 1
    each_q, each_k = (
        length if isinstance(length, int) and length * count == whole else 0
        for length, whole in ((longest_q, tokens), (longest_k, keys))
    )
    if bool(each_q) != bool(each_k):  # one length on one side gives the pairs, if none is masked
        of_q, of_k = (each_q, keys) if each_q else (tokens, each_k)
        pairs = heads * of_q * of_k
        if live_pairs(call, of_q, of_k, bottom_right=True) == of_q * of_k:
            return pairs, pairs, d_qk, d_v
    if not (each_q and each_k):
        most = [
            longest
            if isinstance(longest, int) and 0 < longest <= whole <= longest * count
            else whole
            for longest, whole in ((longest_q, tokens), (longest_k, keys))
        ]
        each = 2 * heads * (3 * d_qk + 2 * d_v if backward else d_qk + d_v)
        low, high = _bounds(count, tokens, keys, *most)
        raise CannotKnow(
            "the lengths of the packed sequences are data that no trace records: "
            f"{each * low / 1e9:.6g} to {each * high / 1e9:.6g} GFLOP, for {count} sequences"
        )
    live = live_pairs(call, each_q, each_k, bottom_right=True)
    return count * heads * each_q * each_k, count * heads * live, d_qk, d_v


def _bounds(count: int, queries: int, keys: int, most_q: int, most_k: int) -> tuple[int, int]:
    """Return the least and the greatest number of pairs of a query and a key, within each of ``count``
    sequences.

    If there are as many keys as queries, each sequence is assumed to have as many keys as queries: the sum of
    squares is least if all sequences are equally long, and greatest if as many as possible have the longest
    length.
    """
    if queries != keys:
        return 0, min(queries * most_k, keys * most_q)
    most = min(most_q, most_k)
    short, more = divmod(queries, count)
    full, rest = divmod(queries, most)
    least = (count - more) * short**2 + more * (short + 1) ** 2
    return least, full * most**2 + rest**2


@op(
    "aten::_flash_attention_forward",
    "aten::_efficient_attention_forward",
    "aten::_cudnn_attention_forward",
    "flash_attn::_flash_attn_forward",
    "flash_attn::_flash_attn_varlen_forward",
    "flash_attn_3::fwd",
    "flash_attn::fwd",
    "xformers::efficient_attention_forward_cutlass",
    "xformers_flash::flash_fwd",
    "flash_attn_3::_flash_attn_forward",
    "aten::_flash_attention_forward_no_dropout_inplace",
    "torch_attn::_varlen_attn",
    "torch_attn::_varlen_attn_out",
    "aiter::mha_fwd",
    "aiter::fmha_v3_fwd",
    "aiter::wrapper_fmha_v3_fwd",
    "aiter::_flash_attn_forward",
    family="attention",
    source=_SOURCE,
    variants={"result_first": "*no_dropout_inplace *_attn_out"},
)
def flash(call: OpCall) -> Cost:
    """[B, N, H, d] operands, or packed [T, H, d] where the lengths follow from the sizes."""
    if variant(call, "result_first"):  # the result is the first argument
        call = replace(call, inputs=(*call.inputs[1:],), outputs=call.inputs[:1])
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    every, live, d_qk, d_v = tokens_first(call, q, k, v)
    return attention_cost(call, q, k, v, (every, live), (d_qk, d_v))


@op(
    "aten::_flash_attention_backward",
    "aten::_efficient_attention_backward",
    "aten::_cudnn_attention_backward",
    "flash_attn::_flash_attn_backward",
    "flash_attn::_flash_attn_varlen_backward",
    "flash_attn_3::bwd",
    "xformers::efficient_attention_backward_cutlass",
    "torch_attn::_varlen_attn_backward",
    "aiter::mha_bwd",
    "aiter::fmha_v3_bwd",
    "aiter::wrapper_fmha_v3_bwd",
    "aiter::_flash_attn_backward",
    "aiter::fmha_v3_varlen_bwd",
    family="attention",
    source=_BACK,
)
def flash_backward(call: OpCall) -> Cost:
    """The output gradient comes first, then query, key, value."""
    grad, q, k, v = (need(call, n, "operand") for n in range(4))
    every, live, d_qk, d_v = tokens_first(call, q, k, v, backward=True)
    return attention_cost(call, q, k, v, (every, live), (d_qk, d_v), backward=True, grads=(grad,))


@op(
    "_C::paged_attention_rocm",
    "_rocm_C::paged_attention",
    "vllm::paged_attention_v1",
    "vllm::paged_attention_v2",
    "_C::paged_attention_v1",
    "_C::paged_attention_v2",
    "flash_attn::_flash_attn_with_kvcache",
    family="attention",
    source="2·pairs·(d_qk + d_v) if the cached lengths are known",
    variants={"kvcache": "flash_attn::_flash_attn_with_kvcache"},
)
def paged(call: OpCall) -> Cost:
    """A sequence's new token attends to the cached pages of that sequence.

    The lengths are data that no trace records, unless a server's step tells those of its requests that
    decode, ``seq_lens`` is a parameter, or there is a single sequence, which is as long as the longest
    (``max_seq_len``).
    """
    operands = tensors(call)
    kvcache = variant(call, "kvcache")
    q = next((t for t in operands if len(t.shape) == (4 if kvcache else 3)), None)
    lengths = call.param("seq_lens", call.param("context_lens"))
    longest = call.param("max_seq_len", call.param("max_context_len", call.param("max_seqlen_k")))
    single = q is not None and q.shape[0] == 1 and isinstance(longest, int)
    if single and not isinstance(lengths, tuple):
        lengths = (longest,)
    step = lengths_of(call)
    if step is not None and step[1].requests and not kvcache:
        window = int_param(call, WINDOW, 0)
        lengths = (step[1].within(window) if window > 0 else step[1].qk,)
    if not isinstance(lengths, tuple) or not lengths:
        raise CannotKnow("the cached keys' lengths are data that no trace records")
    if q is None:
        raise CannotKnow("the trace has no shape for the query")
    shape = sizes(q)
    heads, dim = shape[-2:]
    each = shape[1] if kvcache else 1  # new tokens per sequence
    keys = sum(int(n) for n in lengths if isinstance(n, (int, float)))
    pairs = heads * each * keys
    # keys [pages, heads, d / x, page, x], or as flash attention has them
    rank = 4 if kvcache else 5
    cache = next((t for t in operands if len(t.shape) == rank and t is not q), None)
    shared = call.param("num_kv_heads", sizes(cache)[1] if cache and rank == 5 else None)
    pages: list[Part] | None = None
    if isinstance(shared, int) and cache is not None:  # keys and values of those sequences
        pages = [q, span(cache, 2 * keys * shared * dim)]
    return cost(
        pages,
        [span(q, product(shape))],
        matrix=4 * pairs * dim,
        vector=5 * pairs + product(shape),
        dtype=q.dtype,
        reason="which pages are read is data that no trace records",
    )


@backward_of(
    "aten::_flash_attention_forward",
    "aten::_efficient_attention_forward",
    "aten::_cudnn_attention_forward",
    "flash_attn::_flash_attn_forward",
    "flash_attn::_flash_attn_varlen_forward",
    "torch_attn::_varlen_attn",
)
def flash_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """All three gradients are data gradients; the operands have the tokens before the heads."""
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    every, live, d_qk, d_v = tokens_first(call, q, k, v, backward=True)
    grad = TensorSpec(q.dtype, (*sizes(q)[:-1], d_v))
    both = attention_cost(
        call,
        q,
        k,
        v,
        (every, live),
        (d_qk, d_v),
        backward=True,
        grads=(grad,),
        writes=[q, k, v],
    )
    return both, Cost()


@backward_of(
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "higher_order::flex_attention",
    "flex_attention",
)
def attention_backward(call: OpCall) -> tuple[Cost, Cost]:
    """All three gradients are data gradients; there are no parameters."""
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    heads, queries, keys, d_qk, d_v = _heads_first(q, k, v)
    pairs = heads * queries * keys, heads * live_pairs(call, queries, keys, bottom_right=False)
    grad = TensorSpec(q.dtype, (*sizes(q)[:-1], d_v))
    both = attention_cost(
        call, q, k, v, pairs, (d_qk, d_v), backward=True, grads=(grad,), writes=[q, k, v]
    )
    return both, Cost()
