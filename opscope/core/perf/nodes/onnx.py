"""ONNX's and ONNX Runtime's other names: the ATen op, or the graph node, that has the same operands."""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import also, as_name, op, words

from . import families  # noqa: F401  the names that it registers stay as they are

SAME: Final = {
    "aten::bitwise_not": "BitwiseNot",
    "aten::bitwise_left_shift": "BitShift",
    "aten::celu": "Celu",
    "aten::hardshrink": "Shrink",
    "aten::threshold": "ThresholdedRelu",
    "aten::bernoulli": "Bernoulli",
    "aten::uniform": "RandomUniformLike",
    "aten::clone": "CastLike CenterCropPad MemcpyToHost MemcpyFromHost ReorderInput ReorderOutput",
    "aten::hann_window": "HannWindow HammingWindow BlackmanWindow MelWeightMatrix",
    "aten::det": "Det",
    "aten::linalg_inv": "Inverse",
    "aten::masked_select": "Compress",
    "aten::max_unpool2d": "MaxUnpool",
    "aten::sum": "ReduceSumInteger",
    "aten::scatter": "ScatterElements ScatterND TensorScatter",
    "aten::nll_loss": "NegativeLogLikelihoodLoss",
    "aten::cross_entropy_loss": "SoftmaxCrossEntropyLoss",
    "aten::grid_sampler": "GridSample",
    "aten::cdist": "CDist",
    "aten::im2col": "UnfoldTensor",
    "torchvision::deform_conv2d": "DeformConv",
    "MatMul": "TransposeMatMul FusedMatMulActivation GemmFastGelu",
    "Gemm": "GemmFloat8",
    "MaxPool": "NhwcMaxPool",
    "AveragePool": "QLinearAveragePool",
    "GlobalAveragePool": "QLinearGlobalAveragePool",
    "LayerNormalization": "QOrderedLayerNormalization",
    "Gelu": "QOrderedGelu",
    "RotaryEmbedding": "GemmaRotaryEmbedding",
    "ConvTranspose": "ConvTransposeWithDynamicPads",
    "ConcatV2": "QLinearConcat",
}
#: Nothing moves and nothing is computed: loops and branches count in the nodes of their bodies.
_FREE: Final = words(
    "Loop Scan Optional OptionalGetElement OptionalHasElement SequenceEmpty SequenceLength SequenceMap"
)

for _known, _names in SAME.items():
    if _names:
        also(_known, _names)
op(*_FREE, family="view", view=True, source="moves nothing")(as_name("Reshape"))
