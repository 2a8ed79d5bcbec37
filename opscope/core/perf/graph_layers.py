"""Layers that graphs hold as one node: optimizers, attention and recurrent layers, quantisation."""

from __future__ import annotations

from opscope.core.schema import OpCall, TensorSpec

from .attention import causal_pairs
from .optimizer import apply_update
from .registry import CannotKnow, Cost, op, words
from .shapes import (
    cost,
    distinct_tensors,
    int_param,
    need,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
    tensors,
)

_UPDATES = {
    "sgd": words("ResourceApplyGradientDescent ApplyGradientDescent SGD"),
    "momentum": words("ResourceApplyMomentum ResourceApplyKerasMomentum ApplyMomentum Momentum"),
    "adam": words("ResourceApplyAdam ApplyAdam Adam FusedAdam AdamApplyOne ApplyAdamWithAmsgrad"),
    "adamw": words("AdamWeightDecay FusedAdamWeightDecay AdamW"),
    "adagrad": words("ResourceApplyAdagrad ResourceApplyAdagradV2 ApplyAdagrad"),
    "rmsprop": words("ResourceApplyRMSProp ResourceApplyCenteredRMSProp ApplyRMSProp"),
    "adadelta": words("ResourceApplyAdadelta ApplyAdadelta"),
    "ftrl": words("ResourceApplyFtrl ResourceApplyFtrlV2 ApplyFtrl"),
    "lamb": words("Lamb FusedLamb"),
    "lars": words("LARSUpdate"),
    "adafactor": words("FusedAdaFactor FusedAdaFactorWithGlobalNorm"),
}


@op(*(name for names in _UPDATES.values() for name in names), family="optimizer",
    source="FLOPs a parameter: opscope.core.perf.optimizer.UPDATES")  # fmt: skip
def update(call: OpCall) -> Cost:
    """The gradient is the largest of the last operands; a resource handle hides the parameter."""
    kind = next(kind for kind, names in _UPDATES.items() if call.name in names)
    whole = [t for t in tensors(call) if t.shape]
    if not whole:
        raise CannotKnow("the trace has no shapes for the parameter")
    param = max(whole, key=numel)
    states = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 2}.get(kind, 2)
    return apply_update(kind, call, param, [param] * states)


@op("Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedAttention", "FlashAttentionScore",
    family="attention", source="2·B·H·Nq·Nk·(d_qk + d_v); Attention's input projection 2·B·N·in·out")  # fmt: skip
def attention(call: OpCall) -> Cost:
    """com.microsoft's Attention projects its input; the others get queries, keys and values."""
    found = tensors(call)
    x = need(call, 0, "query")
    shape = sizes(x)
    if len(shape) != 3:
        raise CannotKnow(f"the layout is not known: {list(shape)}")
    batch, queries, wide = shape
    projection = 0
    if call.name == "Attention" and len(found) > 1 and len(found[1].shape) == 2:
        weight = sizes(found[1])
        projection = 2 * batch * queries * product(weight)
        keys, wide = queries, weight[1] // 3
    else:
        if len(found) < 2 or len(found[1].shape) != 3:
            raise CannotKnow("the trace has no shape for the keys")
        keys = sizes(found[1])[1]
        if call.name == "GroupQueryAttention" and len(found) > 3:
            raise CannotKnow("the cached keys' lengths are data that no trace records")
    every = batch * queries * keys
    live = every
    if call.param("unidirectional") == 1 or call.name == "GroupQueryAttention":
        live = batch * causal_pairs(queries, keys)
    heads = int_param(call, "num_heads", int_param(call, "head_num", 1))
    out = output(call) or TensorSpec(x.dtype, (batch, queries, wide))
    return cost(
        [*found],
        [out],
        matrix=projection + 4 * every * wide,
        masked=4 * (every - live) * wide,
        vector=5 * live * heads,
        dtype=promote([x]),
    )


@op("FlashAttentionScoreGrad", family="attention",
    source="2·B·Nq·Nk·H·5, scores recomputed (torch.utils.flop_counter)")  # fmt: skip
def attention_backward(call: OpCall) -> Cost:
    """Query, key, value [B, N, H] and the gradient of the result."""
    q, k, v, grad = (need(call, n, "operand") for n in range(4))
    shape, keys = sizes(q), sizes(k)
    if len(shape) != 3 or len(keys) != 3:
        raise CannotKnow(f"the layout is not known: {list(shape)}")
    batch, queries, wide = shape
    pairs = batch * queries * keys[1]
    heads = int_param(call, "head_num", 1)
    return cost(
        distinct_tensors(call),
        outputs(call) or [q, k, v],
        matrix=10 * pairs * wide,
        vector=7 * pairs * heads + 2 * numel(grad),
        dtype=promote([q]),
    )


@op("PackedMultiHeadAttention", "QAttention", "PagedAttention", "IncreFlashAttention",
    "DecoderAttention", "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention",
    "LongformerAttention", "QOrderedAttention", "QOrderedLongformerAttention", "SparseAttention",
    family="attention", source="2·pairs·(d_qk + d_v), and which pairs is data")  # fmt: skip
def attention_of_data(call: OpCall) -> Cost:
    """A cache, packed sequences or a sparse pattern decide."""
    raise CannotKnow("the lengths of the sequences are data that no trace records")


@op("LSTM", "GRU", "RNN", "CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", family="recurrent",
    source="2 a weight and token")  # fmt: skip
def recurrent(call: OpCall) -> Cost:
    """ONNX: input [T, B, I], weights [D, G·H, I] and [D, G·H, H]."""
    found = tensors(call)
    x = need(call, 0, "input")
    matrices = [t for t in found[1:3] if len(t.shape) == 3]
    if len(matrices) < 2 or call.name.startswith("Cudnn"):
        raise CannotKnow("the weights are packed in one buffer")
    tokens = product(sizes(x)[:-1])
    units = sizes(matrices[1])[0] * sizes(matrices[1])[2]
    each = {"LSTM": 22, "GRU": 17, "RNN": 3}[call.name]
    return cost(
        [*found],
        outputs(call),
        matrix=2 * tokens * sum(map(numel, matrices)),
        vector=each * units * tokens,
        dtype=x.dtype,
        reason="the trace has no outputs",
    )


@op("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "FakeQuantWithMinMaxVars",
    "QuantizeV2", "Dequantize", "aten::fake_quantize_per_tensor_affine",
    "aten::quantize_per_tensor", "aten::quantize_per_channel", "aten::dequantize",
    "aten::_fused_moving_avg_obs_fq_helper", "aten::fake_quantize_per_tensor_affine_cachemask",
    "aten::fake_quantize_per_channel_affine_cachemask",
    "fbgemm::FloatToFP8RowwiseQuantized",
    "fbgemm::FP8RowwiseQuantizedToFloat",
    "fbgemm::FloatToHFP8Quantized",
    "fbgemm::HFP8QuantizedToFloat",
    "fbgemm::FloatToFused8BitRowwiseQuantized",
    "fbgemm::Fused8BitRowwiseQuantizedToFloat",
    "fbgemm::FloatToBfloat16Quantized",
    "fbgemm::Bfloat16QuantizedToFloat",
    "_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant",
    "_C::dynamic_per_token_scaled_fp8_quant", family="quantize",
    source="3 an element: scale, round, clamp; back 2: subtract, scale")  # fmt: skip
def quantize(call: OpCall) -> Cost:
    """A dynamic scale takes the largest value besides: 1 more."""
    found = tensors(call)
    x = need(call, 0, "input")
    if call.name.startswith("_C::") and len(found) > 1:  # the result is the first
        x, result = found[1], found[0]
    elif call.name.startswith("fbgemm::"):
        result = output(call) or TensorSpec(
            "f32" if call.name.endswith("ToFloat") else "u8", x.shape
        )
    else:
        result = output(call) or x
    lower = call.name.lower()
    each = (
        2
        if "dequant" in lower or lower.endswith("tofloat")
        else 4
        if "dynamic" in lower or "moving" in lower
        else 3
    )
    return cost([x], [result], vector=each * numel(x), dtype=x.dtype)
