"""Cost models of norm, softmax and loss nodes."""

from __future__ import annotations

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    cost,
    distinct_tensors,
    need,
    need_output,
    numel,
    output,
    outputs,
    product,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


@op(*words("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx BatchNormalization "
           "BatchNorm BatchNormWithActivation _MklFusedBatchNormV3 InstanceNormalization"),
    family="norm", source="training 7 per element, evaluation 4",
    variants={"instance": "InstanceNormalization"})  # fmt: skip
def batch_norm(call: OpCall) -> Cost:
    """Statistics 4, normalise 1, affine 2; in evaluation: subtract, multiply, affine."""
    x = need(call, 0, "input")
    training = call.param("is_training", call.param("training_mode"))
    # the default is training in TensorFlow, evaluation in ONNX and deployed graphs
    if training is None:
        training = call.name not in ("BatchNormalization",)
    each = 7 if training or variant(call, "instance") else 4
    return cost(tensors(call), outputs(call) or [x], vector=each * numel(x), dtype=x.dtype)


@op(*words("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 BatchNormGrad "
           "_FusedBatchNormGradEx _MklFusedBatchNormGradV3"),
    family="norm", source="10 per element")  # fmt: skip
def batch_norm_grad(call: OpCall) -> Cost:
    """As aten::native_batch_norm_backward."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    return cost(tensors(call), outputs(call) or [x], vector=10 * numel(grad), dtype=x.dtype)


@op(*words("LayerNormalization LayerNorm SkipLayerNormalization EmbedLayerNormalization "
           "SimplifiedLayerNormalization SkipSimplifiedLayerNormalization GroupNormalization GroupNorm "
           "RMSNormalization RmsNorm"),
    family="norm", source="layer 7 per element, root-mean-square 4; skip 1",
    variants={
        "simplified": "*Simplified*",
        "skip": "SkipLayerNormalization SkipSimplifiedLayerNormalization",
        "embed": "EmbedLayerNormalization",
    })  # fmt: skip
def layer_norm(call: OpCall) -> Cost:
    """Mean, variance, normalise, affine, and the addition of a skip connection."""
    x = need(call, 0, "input")
    simple = variant(call, "simplified") or call.name[0] == "R"
    each = (4 if simple else 7) + (1 if variant(call, "skip") else 0)
    if variant(call, "skip") and call.tensor(3 if simple else 4) is not None:
        each += 1  # a bias of the product before
    if variant(call, "embed"):
        return _embed(call)
    return cost(tensors(call), outputs(call) or [x], vector=each * numel(x), dtype=x.dtype)


def _embed(call: OpCall) -> Cost:
    """Sum the rows of two or three tables, and normalise; only the rows that are taken are read."""
    out = need_output(call, NO_OUTPUTS)
    tables = [call.tensor(index) for index in (2, 3, 4)]
    table_count = sum(table is not None for table in tables)
    rest = [call.tensor(index) for index in (0, 1, *range(5, len(call.inputs)))]
    taken = [span(table, min(numel(out), numel(table))) for table in tables if table is not None]
    return cost(
        [*rest, *taken], outputs(call), vector=(6 + table_count) * numel(out), dtype=out.dtype
    )


@op("LayerNormGrad", "GroupNormGrad", "RmsNormGrad", family="norm", source="12 per element")
def layer_norm_grad(call: OpCall) -> Cost:
    """As aten::native_layer_norm_backward."""
    x = need(call, 0, "input")
    return cost(tensors(call), outputs(call) or [x], vector=12 * numel(x), dtype=x.dtype)


@op("SkipGroupNorm", family="norm", source="group norm 7 per element, the skip connection 1")
def skip_norm(call: OpCall) -> Cost:
    """The addition of the residual, and the norm."""
    x = need(call, 0, "input")
    return cost(distinct_tensors(call), outputs(call) or [x], vector=8 * numel(x), dtype=x.dtype)


@op("MeanVarianceNormalization", "LpNormalization", "GlobalLpPool", family="norm",
    source="mean and variance 5 per element; a norm 3; a pooled norm 2")  # fmt: skip
def normalisation(call: OpCall) -> Cost:
    """Normalisation by the mean and variance, or by a norm."""
    x = need(call, 0, "input")
    each = {"M": 5, "L": 3, "G": 2}[call.name[0]]
    writes = outputs(call) if call.name[0] == "G" else [output(call) or x]
    return cost([x], writes, vector=each * numel(x), dtype=x.dtype, reason=NO_OUTPUTS)


@op("LRN", "LRNGrad", family="norm",
    source="squares 1, the window's running sum 2, scale, add, power, divide 4; gradient 12",
    variants={"grad": "LRNGrad"})  # fmt: skip
def local_response(call: OpCall) -> Cost:
    """Each element is divided by a power of the energy of its neighbourhood."""
    x = need(call, 0, "input")
    each = 12 if variant(call, "grad") else 7
    return cost(distinct_tensors(call), [output(call) or x], vector=each * numel(x), dtype=x.dtype)


@op("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", family="loss",
    source="per element: log-softmax 5, product with the labels and sum 2, gradient 1")  # fmt: skip
def softmax_cross_entropy(call: OpCall) -> Cost:
    """Loss and gradient in one op; sparse labels touch one element per row."""
    x, labels = need(call, 0, "logits"), need(call, 1, "labels")
    rows = product(sizes(x)[:-1])
    sparse = len(labels.shape) < len(x.shape)
    flops = 6 * numel(x) + (2 * rows if sparse else 2 * numel(x))
    out = outputs(call) or [TensorSpec(x.dtype, (rows,)), x]
    return cost([x, labels], out, vector=flops, dtype=x.dtype)


@op("SoftmaxGrad", "LogSoftmaxGrad", family="softmax", source="4 per element")
def softmax_grad(call: OpCall) -> Cost:
    """dy·y, its sum, the difference, the product."""
    y = need(call, 0, "output")
    return cost(tensors(call), outputs(call) or [y], vector=4 * numel(y), dtype=y.dtype)


@op("Hardmax", family="softmax", source="1 comparison per element")
def hardmax(call: OpCall) -> Cost:
    """The largest of each row."""
    x = need(call, 0, "input")
    return cost([x], [output(call) or x], vector=numel(x), dtype=x.dtype)


@op("L2Loss", family="loss", source="2 per element: square, add")
def l2_loss(call: OpCall) -> Cost:
    """Half the sum of squares."""
    x = need(call, 0, "input")
    return cost([x], [TensorSpec(x.dtype, ())], vector=2 * numel(x), dtype=x.dtype)


@op("CTCLoss", "CTCLossV2", "RNNTLoss", "EditDistance", family="loss",
    source="7 for each time step and state of the extended target")  # fmt: skip
def ctc(call: OpCall) -> Cost:
    """The labels are sparse: the length of each target is data."""
    raise CannotKnow("the targets' lengths are data that no trace records")
