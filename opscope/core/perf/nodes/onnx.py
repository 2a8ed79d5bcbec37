"""Register ONNX and ONNX Runtime names of ATen ops and graph nodes that have the same operands."""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, also, as_name, op, words
from opscope.core.schema import OpCall

SAME: Final = {
    "aten::bitwise_not": "BitwiseNot",
    "aten::bitwise_left_shift": "BitShift",
    "aten::celu": "Celu",
    "aten::hardshrink": "Shrink",
    "aten::threshold": "ThresholdedRelu",
    "aten::bernoulli": "Bernoulli",
    "aten::uniform": "RandomUniformLike",
    "aten::clone": "CastLike CenterCropPad MemcpyToHost MemcpyFromHost ReorderInput ReorderOutput "
    "RemovePadding RestorePadding",
    # a fork for a systolic array names its layout (ucb-bar/onnxruntime-riscv)
    "QLinearConv": "QLinearConv_nhwc",
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
    "MaxPool": "NhwcMaxPool MaxpoolWithMask",
    "AveragePool": "QLinearAveragePool",
    "GlobalAveragePool": "QLinearGlobalAveragePool",
    "LayerNormalization": "QOrderedLayerNormalization",
    "Gelu": "QOrderedGelu",
    "RotaryEmbedding": "GemmaRotaryEmbedding",
    "ConvTranspose": "ConvTransposeWithDynamicPads",
    "ConcatV2": "QLinearConcat",
}
#: Nodes that move and compute nothing; loops and branches are counted in the nodes of their bodies.
_FREE: Final = words(
    "Loop Scan Optional OptionalGetElement OptionalHasElement SequenceEmpty SequenceLength SequenceMap"
)

for _known, _names in SAME.items():
    if _names:
        also(_known, _names)
op(*_FREE, family="view", view=True, source="moves no data")(as_name("Reshape"))


@op(
    *(f"InferenceSession.{name}" for name in words("""
        run run_async run_with_iobinding run_with_ort_values run_with_ortvaluevector""")),
    *(f"Generator.{name}" for name in words("append_tokens generate_next_token get_logits")),
    family="session",
    source="computes nothing beside its nodes, where those were timed; else null",
)  # fmt: skip
def session_run(call: OpCall) -> Cost:
    """A run of ONNX Runtime's session: its nodes have the costs."""
    if call.param("nodes") == "timed" or call.name.endswith("_async"):
        return Cost()
    raise CannotKnow(
        'its nodes were not timed: call opscope.init("onnxruntime") before the session is made, or'
        " run the program by opscope run"
    )
