"""Cost models of ONNX's attention nodes: ai.onnx's, and those that ONNX Runtime fuses (com.microsoft).

Where operands lie is in microsoft/onnxruntime, docs/ContribOperators.md, and onnx/onnx, docs/Operators.md.
Only the cached keys that a query may see count; if their number is data, the cost is unknown unless the step
of a generator gives it (``perf.cached``).
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.cached import lengths_of
from opscope.core.perf.ops.attention import causal_pairs, window_pairs
from opscope.core.perf.ops.serving_attention import Heads, over_cache
from opscope.core.perf.registry import CannotKnow, Cost, op, variant
from opscope.core.perf.shapes import (
    as_ints,
    cost,
    distinct_tensors,
    int_param,
    need,
    numel,
    output,
    outputs,
    sizes,
)
from opscope.core.schema import OpCall, TensorSpec

_SHARED: Final = "the cached keys lie in a buffer whose filled part is data that no trace records"
_SOURCE: Final = "2·B·H·Nq·Nk·(d_qk + d_v); an input projection 2·B·N·in·out"


@op(
    "Attention",
    "QAttention",
    family="attention",
    source=_SOURCE,
    variants={"quantised": "QAttention"},
)
def attention(call: OpCall) -> Cost:
    """com.microsoft's node has a weight that projects its input; ai.onnx's node has keys and values."""
    x, second = need(call, 0, "input"), call.tensor(1)
    if second is None:
        raise CannotKnow("the trace has no shape for the weight or the keys")
    if len(second.shape) != 2:
        return _of_keys(call, x, second)
    shape, weight = sizes(x), sizes(second)
    if len(shape) != 3:
        raise CannotKnow(f"the layout is not known: {list(shape)}")
    batch, queries, _ = shape
    wide = as_ints(call.param("qkv_hidden_sizes")) or (weight[1] // 3,) * 3
    past = call.tensor(8 if variant(call, "quantised") else 4)  # [2, B, heads, length, size]
    keys = queries
    if past is not None:
        if call.param("past_present_share_buffer") == 1:
            raise CannotKnow(_SHARED)
        keys += sizes(past)[3]
    return _cost(
        call,
        batch * queries,
        (batch, queries, keys),
        (wide[0], wide[2]),
        projection=2 * batch * queries * numel(second),
        causal=call.param("unidirectional") == 1,
        result=(batch, queries, wide[2]),
    )


def _of_keys(call: OpCall, query: TensorSpec, key: TensorSpec) -> Cost:
    """ai.onnx's: queries [B, H, N, D], or [B, N, H·D] with the numbers of heads as parameters."""
    value = call.tensor(2) or key
    q, k, v = sizes(query), sizes(key), sizes(value)
    if len(q) == 4:
        batch, heads, queries, each = q
        keys, out = k[2], heads * v[3]
        result: tuple[int, ...] = (batch, heads, queries, v[3])
        wide = heads * each
    elif len(q) == 3:
        batch, queries, wide = q
        keys = k[1]
        many, key_heads = int_param(call, "q_num_heads", 1), int_param(call, "kv_num_heads", 1)
        out = v[-1] // max(key_heads, 1) * many
        result = (batch, queries, out)
    else:
        raise CannotKnow(f"the layout is not known: {list(q)}")
    past = call.tensor(4)
    if past is not None and len(past.shape) == 4:
        keys += sizes(past)[2]
    causal = call.param("is_causal") == 1
    return _cost(call, batch * queries, (batch, queries, keys), (wide, out), 0, causal, result)


@op("MultiHeadAttention", family="attention", source=_SOURCE)
def multi_head(call: OpCall) -> Cost:
    """Query [B, N, H], or [B, N, heads, 3, D] with keys and values; keys also [B, N, heads, 2, D]."""
    query, key, value = need(call, 0, "query"), call.tensor(1), call.tensor(2)
    q = sizes(query)
    past = call.tensor(6)
    if call.arg(8) is not None:  # the length of the past is data, with a larger buffer
        raise CannotKnow(_SHARED)
    if len(q) == 5:
        batch, queries, heads, _, each = q
        keys, wide, out = queries, heads * each, heads * each
    elif len(q) == 3 and key is not None:
        batch, queries, wide = q
        k = sizes(key)
        if len(k) == 4:  # [B, heads, N, D], of cross attention
            keys = k[2]
        else:
            keys = k[1]
        v = sizes(value) if value is not None else k
        out = v[1] * v[3] if len(v) == 4 else v[2] if len(v) == 3 else wide
    else:
        raise CannotKnow("the trace has no shape for the keys")
    if past is not None and (key is None or len(key.shape) == 3):
        keys += sizes(past)[2]
    causal = call.param("unidirectional") == 1
    result = (batch, queries, out)
    return _cost(call, batch * queries, (batch, queries, keys), (wide, out), 0, causal, result)


@op("GroupQueryAttention", family="attention", source=_SOURCE)
def grouped(call: OpCall) -> Cost:
    """The query is [B, N, H·D], or contains keys and values, too; the cache is [B, heads, length, D]."""
    q = sizes(need(call, 0, "query"))
    if len(q) != 3:
        raise CannotKnow(f"the layout is not known: {list(q)}")
    batch, queries, wide = q
    if call.tensor(1) is None:  # packed
        heads, key_heads = int_param(call, "num_heads", 0), int_param(call, "kv_num_heads", 0)
        if not heads or not key_heads:
            raise CannotKnow("the trace does not record the numbers of heads")
        wide = wide // (heads + 2 * key_heads) * heads
    past, results = call.tensor(3), call.output_leaves() or ()
    present = results[1] if len(results) > 1 else None
    keys, window = queries, max(int_param(call, "local_window_size", -1), 0)
    if past is not None and sizes(past)[2]:
        # a growing cache is as long as its content; a cache of constant size is a buffer
        if present is None or sizes(present)[2] <= sizes(past)[2]:
            if lengths_of(call) is None:
                raise CannotKnow(_SHARED)
            return over_cache(call, _of_buffer(call, past, wide), window)
        keys = sizes(present)[2]
    result = (batch, queries, wide)
    return _cost(
        call, batch * queries, (batch, queries, keys), (wide, wide), 0, True, result, window
    )


def _of_buffer(call: OpCall, past: TensorSpec, wide: int) -> Heads:
    """Return the heads of an attention whose keys lie in a buffer [B, heads, length, D]."""
    _, key_heads, _, each = sizes(past)
    return Heads(heads=wide // max(each, 1), prefill=(each, each), decode=(each, each),
                 cached=2 * key_heads * each, q=need(call, 0, "query"), keys=past,
                 out=(call.output_leaves() or (None,))[0])  # fmt: skip


def _cost(
    call: OpCall,
    rows: int,
    lengths: tuple[int, int, int],
    wide: tuple[int, int],
    projection: int,
    causal: bool,
    result: tuple[int, ...],
    window: int = 0,
) -> Cost:
    """Return the cost; ``wide``: the widths of all heads together, of queries and of values; ``window``: the
    most keys that a query sees, 0: all."""
    batch, queries, keys = lengths
    every = rows * keys
    live = batch * causal_pairs(queries, keys, bottom_right=True) if causal else every
    if window:
        live = batch * window_pairs(queries, keys, window - 1, 0, keys - queries)
    x = need(call, 0, "input")
    heads = int_param(call, "num_heads", int_param(call, "q_num_heads", 1))
    has_output = call.outputs is not None and output(call) is not None
    return cost(
        distinct_tensors(call),
        outputs(call) if has_output else [TensorSpec(x.dtype, result)],
        matrix=projection + 2 * every * sum(wide),
        masked=2 * (every - live) * sum(wide),
        vector=5 * live * heads,
        dtype=x.dtype,
    )
