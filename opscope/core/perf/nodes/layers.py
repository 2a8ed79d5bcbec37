"""Cost models of whole layers in one node: optimizers, attention and recurrent layers."""

from __future__ import annotations

from opscope.core.perf.ops.optimizer import apply_update, update_flops
from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    Part,
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
from opscope.core.schema import OpCall, TensorSpec

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
    source="FLOPs per parameter: opscope.core.perf.ops.optimizer.UPDATES")  # fmt: skip
def update(call: OpCall) -> Cost:
    """The largest operand gives the parameter's size, as a resource handle hides the parameter itself."""
    kind = next(kind for kind, names in _UPDATES.items() if call.name in names)
    shaped = [t for t in tensors(call) if t.shape]
    if not shaped:
        raise CannotKnow("the trace has no shapes for the parameter")
    param = max(shaped, key=numel)
    states = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 2}.get(kind, 2)
    return apply_update(kind, call, param, [param] * states)


@op(
    *words("FusedMulApplyMomentum FusedMulApplyMomentumExtern FusedMulApplyKerasMomentum"),
    family="optimizer",
    source="as ApplyMomentum, and 1 per parameter: the gradient is scaled first",
)
def scaled_momentum(call: OpCall) -> Cost:
    """A product of the gradient and a number, fused with ``ApplyMomentum``."""
    param = max(tensors(call), key=numel, default=None)
    if param is None:
        raise CannotKnow("the trace has no shapes for the parameter")
    each = update_flops("momentum", call) + 1
    return cost([param] * 3, [param] * 2, vector=each * numel(param), dtype=param.dtype)


@op(
    "AdamNoUpdateParam",
    "EmbeddingApplyAdam",
    family="optimizer",
    source="FLOPs per parameter: optimizer.UPDATES",
)
def moments(call: OpCall) -> Cost:
    """The moments alone: 10 FLOPs per parameter; the whole of Adam's update: 12."""
    x = max(tensors(call), key=numel, default=None)
    if x is None:
        raise CannotKnow("the trace has no shapes for the parameter")
    each = 10 if call.name == "AdamNoUpdateParam" else 12
    moved: list[Part] = [x, x]
    return cost([*moved, x], moved, vector=each * numel(x), dtype=x.dtype)


_SPARSE_UPDATES = {
    "ResourceSparseApplyAdagrad": 5, "ResourceSparseApplyAdagradV2": 5, "SparseApplyAdagrad": 5,
    "SparseApplyAdagradV2": 5, "ResourceSparseApplyAdagradDA": 5, "SparseApplyAdagradDA": 5,
    "ResourceSparseApplyProximalAdagrad": 5, "SparseApplyProximalAdagrad": 5,
    "ResourceSparseApplyAdadelta": 11, "SparseApplyAdadelta": 11, "ResourceSparseApplyFtrl": 10,
    "ResourceSparseApplyFtrlV2": 10, "SparseApplyFtrl": 10, "SparseApplyFtrlV2": 10,
    "ResourceSparseApplyMomentum": 4, "ResourceSparseApplyKerasMomentum": 4, "SparseApplyMomentum": 4,
    "ResourceSparseApplyRMSProp": 8, "SparseApplyRMSProp": 8,
    "ResourceSparseApplyCenteredRMSProp": 8, "SparseApplyCenteredRMSProp": 8,
    "ResourceSparseApplyProximalGradientDescent": 2, "SparseApplyProximalGradientDescent": 2,
}  # fmt: skip


_ROWS_STATES = {2: 0, 4: 1, 5: 1, 8: 2, 10: 2, 11: 2}


@op(*_SPARSE_UPDATES, family="optimizer", source="FLOPs per updated parameter: optimizer.UPDATES")
def sparse_update(call: OpCall) -> Cost:
    """Only the rows of the indices are updated: as many elements as the gradient has."""
    operands = tensors(call)
    at = next(
        (
            n
            for n, t in enumerate(operands)
            if n and t.dtype in ("i32", "i64") and len(t.shape) == 1
        ),
        None,
    )
    if at is None:
        raise CannotKnow("the trace has no shape for the indices")
    grad, indices = operands[at - 1], operands[at]
    each = _SPARSE_UPDATES[call.name]
    states: list[Part] = [grad] * (1 + _ROWS_STATES[each])
    return cost([*states, grad, indices], states, vector=each * numel(grad), dtype=grad.dtype)


@op("FlashAttentionScore", family="attention", source="2·B·H·Nq·Nk·(d_qk + d_v)")
def attention(call: OpCall) -> Cost:
    """Queries, keys and values [B, N, H]."""
    operands = tensors(call)
    x = need(call, 0, "query")
    shape = sizes(x)
    if len(shape) != 3:
        raise CannotKnow(f"the layout is not known: {list(shape)}")
    batch, queries, wide = shape
    if len(operands) < 2 or len(operands[1].shape) != 3:
        raise CannotKnow("the trace has no shape for the keys")
    every = batch * queries * sizes(operands[1])[1]
    heads = int_param(call, "head_num", 1)
    out = output(call) or TensorSpec(x.dtype, (batch, queries, wide))
    return cost(
        operands,
        [out],
        matrix=4 * every * wide,
        vector=5 * every * heads,
        dtype=promote([x]),
    )


@op("FlashAttentionScoreGrad", family="attention",
    source="2·B·Nq·Nk·H·5, scores recomputed (torch.utils.flop_counter)")  # fmt: skip
def attention_backward(call: OpCall) -> Cost:
    """Operands: query, key, value [B, N, H] and the gradient of the result."""
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


@op("PackedAttention", "PackedMultiHeadAttention", "PagedAttention", "IncreFlashAttention",
    "DecoderAttention", "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention",
    "LongformerAttention", "QOrderedAttention", "QOrderedLongformerAttention", "SparseAttention",
    family="attention", source="2·pairs·(d_qk + d_v); the number of pairs is data")  # fmt: skip
def attention_of_data(call: OpCall) -> Cost:
    """The number of pairs depends on a cache, packed sequences or a sparse pattern."""
    raise CannotKnow("the lengths of the sequences are data that no trace records")


@op("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM", "CudnnRNN", "CudnnRNNV2", "CudnnRNNV3",
    family="recurrent", source="2 per weight and token",
    variants={"cudnn": "Cudnn*", "quantised": "DynamicQuantizeLSTM"})  # fmt: skip
def recurrent(call: OpCall) -> Cost:
    """ONNX's operands: input [T, B, I], weights [D, G·H, I] and [D, G·H, H]; quantised, their transposes."""
    operands = tensors(call)
    x = need(call, 0, "input")
    matrices = [t for t in operands[1:3] if len(t.shape) == 3]
    if len(matrices) < 2 or variant(call, "cudnn"):
        raise CannotKnow("the weights are packed in one buffer")
    tokens = product(sizes(x)[:-1])
    directions, hidden = sizes(matrices[1])[0], sizes(matrices[1])[2]
    if variant(call, "quantised"):
        hidden = sizes(matrices[1])[1]
    units = directions * hidden
    each = {"LSTM": 22, "GRU": 17, "RNN": 3, "DynamicQuantizeLSTM": 22}[call.name]
    return cost(
        operands,
        outputs(call),
        matrix=2 * tokens * sum(map(numel, matrices)),
        vector=each * units * tokens,
        dtype=matrices[0].dtype,
        vector_dtype=x.dtype,
        reason=NO_OUTPUTS,
    )


@op(
    *words("LSTMBlockCell LSTMBlockCellGrad BlockLSTM BlockLSTMV2 BlockLSTMGrad BlockLSTMGradV2 "
           "GRUBlockCell GRUBlockCellGrad BasicLSTMCell DynamicRNN"),
    family="recurrent",
    source="2 per weight and token; gates LSTM 22, GRU 17 per unit; gradients twice",
    variants={"whole_run": "Block* Dynamic*", "gru": "GRU*", "gradient": "*Grad*", "lstm": "*LSTM*",
              "whole_gradient": "BlockLSTMGrad*", "lstm_cell_gradient": "LSTMBlockCellGrad"},
)  # fmt: skip
def block_cell(call: OpCall) -> Cost:
    """Operands: input [B, I] or [T, B, I], a weight [I + H, 4·H] (GRU: [I + H, 2·H] and [I + H, H])."""
    operands = tensors(call)
    is_run = variant(call, "whole_run")
    x = next((t for t in operands if len(t.shape) == (3 if is_run else 2)), None)
    if x is None:
        raise CannotKnow("the trace has no shape for the input")
    inner = sizes(x)[-1]
    gru = variant(call, "gru")
    flat = [sizes(t) for t in operands if t is not x and len(t.shape) == 2]
    units = {w[1] for w in flat if w[0] == sizes(x)[-2]}  # H of the states [B, H]
    gates_of = (1, 2) if gru else (4,)
    shapes = [w for w in flat if (h := w[0] - inner) in units and w[1] in [g * h for g in gates_of]]
    if len(shapes) != (2 if gru else 1):
        raise CannotKnow("the trace has no shape for the weights, or several that fit")
    hidden = shapes[0][0] - inner
    tokens = product(sizes(x)[:-1])
    times = 2 if variant(call, "gradient") else 1
    # the gradient op has only the products of the data gradients; the weight gradients are another op
    matrix = 2 * tokens * sum(map(product, shapes))
    if variant(call, "whole_gradient"):
        matrix *= 2
    gates = 22 if variant(call, "lstm") else 17
    return cost(
        distinct_tensors(call),
        outputs(call),
        matrix=0 if variant(call, "lstm_cell_gradient") else matrix,
        vector=times * gates * hidden * tokens,
        dtype=x.dtype,
        reason=NO_OUTPUTS,
    )


@op("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3", family="recurrent",
    source="2 per weight and token, if the weights are not packed")  # fmt: skip
def cudnn_backprop(call: OpCall) -> Cost:
    """All weights are in one buffer; its size does not show its parts."""
    raise CannotKnow("the weights are packed in one buffer")
