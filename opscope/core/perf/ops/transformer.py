"""Transformer layers that are one op: attention with its projections, and a whole encoder layer."""

from __future__ import annotations

from opscope.core.perf.api import cost as cost_of
from opscope.core.perf.registry import CannotKnow, Cost, op, variant
from opscope.core.perf.shapes import cost, int_param, need, outputs, promote, sizes, tensors
from opscope.core.schema import OpCall, TensorSpec


@op(
    "aten::_native_multi_head_attention",
    "aten::_triton_multi_head_attention",
    "aten::multi_head_attention_forward",
    family="attention",
    source="projections as gemm, attention as SDPA",
    variants={"native_call": "aten::_*"},
)
def multi_head(call: OpCall) -> Cost:
    """Three projections in, attention over heads, one projection out."""
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    qs, ks = sizes(q), sizes(k)
    if len(qs) != 3:
        raise CannotKnow("the trace does not record the layer's inner sizes")
    # [B, N, E]; multi_head_attention_forward's default is [N, B, E]
    first = variant(call, "native_call")
    batch, queries, keys = (qs[0], qs[1], ks[1]) if first else (qs[1], qs[0], ks[0])
    embed = qs[2]
    projections = 2 * batch * embed * embed * (2 * queries + 2 * keys)
    every = batch * queries * keys
    return cost(
        [q, k, v, *tensors(call)[3:]],
        [q],
        matrix=projections + 4 * every * embed,
        dtype=promote([q, k, v]),
    )


@op(
    "aten::_transformer_encoder_layer_fwd",
    family="attention",
    source="the sum of its parts: linear, SDPA, layer_norm, the activation and add",
)
def encoder_layer(call: OpCall) -> Cost:
    """Self-attention [B, N, E] with its two projections, two products with the activation between them,
    two norms and two sums. Weights and input are read once, the result is written once."""
    operands = tensors(call)
    if len(operands) < 13:
        raise CannotKnow("the trace has no shapes for the layer's weights")
    x, into, out_of, widen, narrow = (
        operands[0],
        operands[1],
        operands[3],
        operands[9],
        operands[11],
    )
    heads, shape = int_param(call, "num_heads"), sizes(x)
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise CannotKnow(f"not an encoder layer: {list(shape)} with {heads} heads")
    batch, length, width = shape
    head = TensorSpec(x.dtype, (batch, heads, length, width // heads))
    inner = TensorSpec(x.dtype, (batch, length, sizes(widen)[0]))
    activation = "aten::gelu" if call.param("use_gelu") is True else "aten::relu"
    parts = [
        OpCall("aten::linear", (x, into)),
        OpCall("aten::scaled_dot_product_attention", (head, head, head)),
        OpCall("aten::linear", (x, out_of)),
        OpCall("aten::linear", (x, widen)),
        OpCall(activation, (inner,)),
        OpCall("aten::linear", (inner, narrow)),
        *[OpCall("aten::add", (x, x))] * 2,
        *[OpCall("aten::layer_norm", (x,), None, (("normalized_shape", (width,)),))] * 2,
    ]
    matrix = vector = 0
    for part in parts:
        priced, why = cost_of(part)
        if priced is None:
            raise CannotKnow(why or "a part's cost is not known")
        matrix += priced.matrix_flops
        vector += priced.vector_flops
    return cost(
        operands, outputs(call) or [x], matrix=matrix, vector=vector, dtype=promote([x, into])
    )
