"""Register MindSpore's names of ATen ops and graph nodes, and the gradients that its adapter records whole.

A gradient (``Conv2DBackward``) has the gradients of the op's results as its first operands, then the op's
own operands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from opscope.core.perf.registry import (
    CannotKnow,
    Cost,
    also,
    as_name,
    lookup,
    op,
    variant,
    words,
)
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    cost,
    need,
    numel,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

SAME: Final = {
    "aten::acos": "ACos Angle Eps Heaviside SinhS Trunc Erfinv Conj",
    "aten::addcdiv": "Addcdiv",
    "aten::addcmul": "Addcmul",
    "aten::addmm": "Addmm InplaceAddmm",
    "aten::baddbmm": "Baddbmm",
    "aten::bmm": "Bmm",
    "aten::mm": "Mm",
    "aten::mv": "Mv",
    "aten::matmul": "Matmul BatchMatMulExt Dot",
    "aten::ger": "Ger",
    "aten::_grouped_mm": "GroupedMatmul GroupedMatmulV2 GroupedMatmulV4 Gmm GmmV2",
    "aten::bincount": "Bincount",
    "aten::atan2": "Atan2",
    "aten::fmod": "Fmod RemainderTensorTensor TruncateDiv TruncateMod Igamma Igammac NextAfter Zeta",
    "aten::hypot": "Hypot",
    "aten::eq": "IsClose",
    "aten::mul": "InplaceMul",
    "aten::div": "InplaceDiv Divs",
    "aten::add": "InplaceAddExt",
    "aten::sub": "SubScalar",
    "aten::pow": "PowScalarTensor PowTensorScalar",
    "aten::xlogy": "Xlogy",
    "aten::logaddexp": "LogAddExp",
    "aten::lerp": "Lerp LerpScalar",
    "aten::logit": "Logit",
    "aten::sinc": "Sinc",
    "aten::nan_to_num": "NanToNum",
    "aten::polygamma": "Polygamma",
    "aten::clamp": "ClampScalar ClampTensor",
    "aten::masked_fill": "MaskedFill MaskedFillScalar",
    "aten::where": "SelectExt",
    "aten::adaptive_avg_pool2d": "AdaptiveAvgPool2D AdaptiveAvgPool2DExt",
    "aten::adaptive_avg_pool3d": "AdaptiveAvgPool3D",
    "aten::adaptive_max_pool2d": "AdaptiveMaxPool2D",
    "aten::adaptive_max_pool3d": "AdaptiveMaxPool3D",
    "aten::avg_pool1d": "AvgPool1D",
    "aten::avg_pool2d": "AvgPool2D",
    "aten::avg_pool2d_backward": "AvgPool2DGrad",
    "aten::max_pool2d_with_indices": "MaxPoolWithIndices MaxPoolWithMask",
    "MaxPoolGradWithArgmax": "MaxPoolGradWithIndices MaxPoolGradWithMask",
    # CANN's names of kernels whose sizes are attributes
    "Conv2DBackpropFilter": "Conv2DBackpropFilterD",
    "Conv2DBackpropInput": "Conv2DBackpropInputD",
    # an Ascend device takes its data from a queue: no arithmetic
    "IteratorGetNext": "GetNext InitData EndOfSequence",
    "aten::zero_": "MemSet AtomicAddrClean",
    "aten::max_unpool2d": "MaxUnpool2D",
    "aten::native_batch_norm": "BatchNormExt",
    "aten::native_batch_norm_backward": "BatchNormGradExt BatchNormReduceGrad",
    "aten::layer_norm": "LayerNormExt",
    "aten::native_layer_norm_backward": "LayerNormGradExt",
    "aten::renorm": "Renorm L2Normalize",
    "aten::convolution": "Convolution ConvolutionStr",
    "aten::convolution_backward": "ConvolutionGrad",
    "aten::celu": "CeLU",
    "aten::elu": "EluExt",
    "aten::selu": "SeLUExt",
    "aten::gelu": "GeluExt",
    "aten::leaky_relu": "LeakyReLUExt",
    "aten::mish": "MishExt",
    "aten::softplus": "SoftplusExt",
    "aten::softshrink": "SoftShrink",
    "aten::hardshrink": "HShrink HardShrink",
    "aten::log_sigmoid": "LogSigmoid",
    "aten::threshold": "Threshold",
    "aten::relu": "InplaceReLU",
    "aten::elu_backward": "EluGradExt",
    "aten::gelu_backward": "GeluGradExt",
    "aten::hardshrink_backward": "HShrinkGrad",
    "aten::hardsigmoid_backward": "HSigmoidGrad",
    "aten::hardswish_backward": "HSwishGrad",
    "aten::leaky_relu_backward": "LeakyReLUGradExt",
    "aten::log_sigmoid_backward": "LogSigmoidGrad",
    "aten::logit_backward": "LogitGrad",
    "aten::mish_backward": "MishGradExt",
    "aten::prelu_backward": "PReLUGrad",
    "aten::silu_backward": "SiLUGrad",
    "aten::softplus_backward": "SoftplusGradExt",
    "aten::softshrink_backward": "SoftShrinkGrad",
    "aten::threshold_backward": "ThresholdGrad",
    "aten::log_softmax": "LogSoftmaxExt LogSoftmaxV2",
    "aten::softmax": "SoftmaxV2",
    "aten::_softmax_backward_data": "SoftmaxBackward",
    "aten::binary_cross_entropy": "BinaryCrossEntropy",
    "aten::binary_cross_entropy_backward": "BinaryCrossEntropyGrad",
    "aten::binary_cross_entropy_with_logits": "BCEWithLogitsLoss SigmoidCrossEntropyWithLogits",
    "aten::binary_cross_entropy_with_logits_backward": "SigmoidCrossEntropyWithLogitsGrad",
    "aten::kl_div": "KLDivLoss",
    "aten::kl_div_backward": "KLDivLossGrad",
    "aten::l1_loss": "L1LossExt",
    "aten::multi_margin_loss": "MultiMarginLoss",
    "aten::multilabel_margin_loss": "MultilabelMarginLoss",
    "aten::nll_loss": "NLLLoss",
    "aten::smooth_l1_loss": "SmoothL1Loss",
    "aten::smooth_l1_loss_backward": "SmoothL1LossGrad",
    "aten::soft_margin_loss": "SoftMarginLoss",
    "aten::soft_margin_loss_backward": "SoftMarginLossGrad",
    "aten::native_dropout": "DropoutExt Dropout2D Dropout3D",
    "aten::native_dropout_backward": "DropoutGrad DropoutGradExt DropoutDoMask",
    "aten::embedding": "Embedding SparseGatherV2",
    "aten::embedding_dense_backward": "EmbeddingDenseBackward",
    "aten::index": "Index",
    "aten::index_add_": "IndexAdd IndexAddExt",
    "aten::index_fill": "IndexFill",
    "aten::index_put": "IndexPut",
    "aten::index_select": "IndexSelect",
    "aten::masked_scatter": "MaskedScatter",
    "aten::masked_select": "MaskedSelect",
    "aten::nonzero": "NonZero",
    "aten::scatter": "Scatter TensorScatterElements KVCacheScatterUpdate",
    "aten::scatter_add": "ScatterAddExt",
    "aten::cdist": "Cdist",
    "aten::_cdist_backward": "CdistGrad",
    "aten::cross": "Cross",
    "aten::cummax": "Cummax",
    "aten::cummin": "Cummin",
    "aten::cumsum": "CumsumExt",
    "aten::amax": "ReduceMaxExt",
    "aten::max": "MaxDim",
    "aten::min": "MinDim",
    "aten::median": "NanMedian Median",
    "aten::argmax": "ArgMaxExt ArgMinExt",
    "aten::count_nonzero": "CountNonZero",
    "aten::mean": "MeanExt",
    "aten::prod": "ProdExt",
    "aten::sum": "SumExt",
    "aten::std": "Std ReduceStd",
    "aten::var": "Var",
    "aten::var_mean": "VarMean",
    "aten::norm": "Norm LpNorm",
    "aten::trace": "Trace TraceExt",
    "aten::sort": "SortExt",
    "aten::topk": "TopkExt",
    "aten::searchsorted": "SearchSorted",
    "aten::histc": "Histogram",
    "aten::cholesky_inverse": "CholeskyInverse",
    "aten::cholesky_solve": "CholeskySolve",
    "aten::geqrf": "Geqrf",
    "aten::linalg_lstsq": "LstsqV2",
    "aten::lu_solve": "LuSolve",
    "aten::linalg_inv": "MatrixInverseExt",
    "aten::orgqr": "Orgqr",
    "aten::ormqr": "Ormqr",
    "aten::linalg_solve_triangular": "TriangularSolve",
    "aten::upsample_bilinear2d": "UpsampleBilinear2D",
    "aten::upsample_bilinear2d_backward": "UpsampleBilinear2DGrad",
    "aten::upsample_linear1d": "UpsampleLinear1D ResizeLinear1D",
    "aten::upsample_nearest1d": "UpsampleNearest1D",
    "aten::upsample_nearest2d": "UpsampleNearest2D",
    "aten::upsample_nearest2d_backward": "UpsampleNearest2DGrad",
    "aten::upsample_nearest3d": "UpsampleNearest3D",
    "aten::upsample_trilinear3d": "UpsampleTrilinear3D",
    "aten::grid_sampler_2d": "GridSampler2D",
    "aten::grid_sampler_3d": "GridSampler3D",
    "aten::grid_sampler_2d_backward": "GridSampler2DGrad",
    "aten::col2im": "Col2Im",
    "aten::im2col": "Im2ColExt",
    "aten::reflection_pad1d": "ReflectionPad1D",
    "aten::reflection_pad2d": "ReflectionPad2D",
    "aten::replication_pad1d": "ReplicationPad1D",
    "aten::replication_pad2d": "ReplicationPad2D",
    "aten::constant_pad_nd": "PadV3",
    "aten::one_hot": "OneHotExt",
    "aten::clone": "CopyExt Narrow Rot90 Tril TrilExt Triu",
    "aten::copy": "InplaceCopy",
    "aten::cat": "StackExt",
    "aten::repeat": "Repeat RepeatElements RepeatInterleaveInt RepeatInterleaveTensor Meshgrid",
    "aten::arange": "Arange Eye FillScalar FillTensor InplaceFillScalar InplaceZero ZerosLikeExt "
    "OnesLikeExt ScalarToTensor TrilIndices TriuIndices",
    "aten::rand": "RandExt RandLikeExt UniformExt",
    "aten::randint": "Randint UniformInt",
    "aten::randn": "RandnLike NormalTensorTensor",
    "aten::randperm": "Randperm RandpermV2",
    "aten::cauchy": "StandardLaplace",
    "aten::bernoulli": "DropoutGenMask",
    "aten::matrix_exp": "MatrixExp",
    "aten::nuclear_norm": "NuclearNorm",
    "aten::polar": "Polar",
    "aten::multinomial": "RandomCategorical",
    "RotaryEmbedding": "RotaryPositionEmbedding RotaryPositionEmbeddingGrad",
    "flash_attn::apply_rotary": "ApplyRotaryPosEmb",
    "aten::unique": "Unique2 UniqueWithPad UniqueDim",
    "aten::unique_consecutive": "UniqueConsecutive",
    "aten::_ctc_loss_backward": "CTCLossV2Grad",
    "MaxPoolWithArgmax": "MaxPool3DWithArgmax",
    "FastGelu": "FastGeLU",
    "FakeQuantWithMinMaxVars": "Quant",
    "DynamicQuantizeLinear": "DynamicQuantExt",
    "SquaredDifference": "SquareSumAll",
    "FlashAttentionScore": "PromptFlashAttention",
    "Relu": "ReLUV2",
    "MatMul": "MatmulAllReduce MatmulReduceScatter QuantMatmul WeightQuantBatchMatmul QuantBatchMatmul",
    "_C::fused_add_rms_norm": "AddRmsNorm",
    "_C_cache_ops::reshape_and_cache": "ReshapeAndCache",
    "_moe_C::moe_permute": "MoeTokenPermute MoeTokenUnpermute MoeInitRouting MoeFinalizeRouting",
    "c10d::alltoall_base_": "AlltoAll NeighborExchange",
    "c10d::gather_": "CollectiveGather",
    "c10d::scatter_": "CollectiveScatter",
    "c10d::send": "Send",
    "c10d::recv_": "Receive",
    "c10d::reduce_": "Reduce",
}
#: Nodes that move and compute nothing.
_FREE: Final = words("FlattenExt View TransposeExt SplitTensor SplitWithSize UnstackExt SliceExt Generator "
                     "HookBackward InsertGemV2InBackward TensorShape Print")  # fmt: skip

for _aten, _names in SAME.items():
    also(_aten, _names)
op(*_FREE, family="view", view=True, source="moves no data")(as_name("Reshape"))


def _gradients(call: OpCall) -> list[TensorSpec | None]:
    """Return the gradients that a backward computes, None for each operand that needs no gradient."""
    leaves = call.output_leaves()
    if leaves is None:
        raise CannotKnow(NO_OUTPUTS)
    return list(leaves)


def _needed(call: OpCall) -> list[TensorSpec]:
    return [leaf for leaf in _gradients(call) if leaf is not None]


def _products(call: OpCall, depth: int) -> Cost:
    """Each of the two gradients repeats the forward's multiply-adds, ``depth`` for an output."""
    grad = need(call, 0, "gradient")
    product_count = sum(leaf is not None for leaf in _gradients(call)[:2])
    bias = sum(numel(leaf) for leaf in _gradients(call)[2:] if leaf is not None)
    return cost(tensors(call), _needed(call), matrix=2 * numel(grad) * depth * product_count,
                vector=max(numel(grad) - bias, 0) if bias else 0, dtype=grad.dtype)  # fmt: skip


@op("Conv2DBackward", "Conv3DBackward", "DepthwiseConv2dNativeBackward", family="conv",
    source="for each gradient 2·(output gradient)·(weights per output channel)",
    variants={"depthwise": "*epthwise*"})  # fmt: skip
def conv_gradients(call: OpCall) -> Cost:
    """Operands: gradient, data, weights [O, I, k…] (depthwise [C, 1, k…])."""
    weights = sizes(need(call, 2, "weight"))
    return _products(call, product(weights[2:] if variant(call, "depthwise") else weights[1:]))


@op(*words("MatMulBackward MatMulExtBackward BatchMatMulBackward BatchMatMulExtBackward MmBackward "
           "MatmulBackward DenseBackward"),
    family="gemm", source="for each gradient 2·M·N·K")  # fmt: skip
def product_gradients(call: OpCall) -> Cost:
    """Operands: gradient, the two factors, and of ``Dense`` the bias."""
    left = sizes(need(call, 1, "input"))
    turned = call.param("transpose_a") is True and len(left) > 1
    return _products(call, left[-2] if turned else left[-1])


@op("BiasAddBackward", family="reduction", source="inputs − outputs, for the bias")
def bias_gradients(call: OpCall) -> Cost:
    """The gradient itself, and its sum over all dimensions but the channels."""
    grad, bias = need(call, 0, "gradient"), need(call, 2, "bias")
    return cost([grad], [bias], vector=max(numel(grad) - numel(bias), 0), dtype=grad.dtype)


@op("MaxPoolBackward", "AvgPoolBackward", "MaxPool3DBackward", "AvgPool3DBackward",
    family="pooling", source="as MaxPoolGrad")  # fmt: skip
def pool_gradients(call: OpCall) -> Cost:
    """Operands: gradient, data."""
    grad, x = need(call, 0, "gradient"), need(call, 1, "input")
    inputs = (x, grad, grad)  # the result of the forward has the gradient's size
    entry = lookup("MaxPoolGrad")
    assert entry is not None
    return entry.model(replace(call, name="MaxPoolGrad", inputs=inputs, outputs=(x,)))


@op("BatchNormBackward", family="norm", source="as BatchNormGrad")
def norm_gradients(call: OpCall) -> Cost:
    """Operands: the gradients of five results (first the data's), then the operands of the forward."""
    return _as_grad(call, "BatchNormGrad", 2)


@op("LayerNormBackward", family="norm", source="as LayerNormGrad")
def layer_norm_gradients(call: OpCall) -> Cost:
    """Operands: the gradients of three results (first the data's), then the operands of the forward."""
    return _as_grad(call, "LayerNormGrad", 3)


def _as_grad(call: OpCall, name: str, count: int) -> Cost:
    operands = [operand for operand in tensors(call) if operand is not None]
    entry = lookup(name)
    assert entry is not None
    plain_call = replace(
        call, name=name, inputs=tuple(operands[:count]), outputs=tuple(_needed(call))
    )
    return entry.model(plain_call)


@op("GatherDGradV2", "GatherDBackward", "GatherBackward", "GatherDGrad", family="embedding",
    source="1 addition per element of the gradient")  # fmt: skip
def gather_gradients(call: OpCall) -> Cost:
    """The gradient is added to zeros at the places of the indices."""
    grad = need(call, 0, "gradient") if "Backward" in call.name else tensors(call)[-1]
    return cost(tensors(call), _needed(call), vector=numel(grad), dtype=grad.dtype)


#: Gradients of one operation for each element of the result's gradient, and those that move data.
_ELEMENTWISE: Final = words("ReLUBackward MulsBackward DivsBackward NegBackward ExpBackward "
                            "MaskedFillBackward SigmoidBackward")  # fmt: skip
_MOVED: Final = words("FlattenBackward ReshapeBackward ViewBackward SqueezeBackward ExpandDimsBackward "
                      "TransposeBackward TransposeExtViewBackward SplitBackward ConcatBackward "
                      "AddBackward AddExtBackward StridedSliceBackward OnesLikeBackward "
                      "BroadcastToBackward TileBackward")  # fmt: skip


@op(*_ELEMENTWISE, family="elementwise", source="1 per element of the gradient")
def each_gradient(call: OpCall) -> Cost:
    """One operation for each element."""
    grad = need(call, 0, "gradient")
    return cost(tensors(call), _needed(call), vector=numel(grad), dtype=grad.dtype)


op(*_MOVED, family="view", view=True, source="hands on its operand")(as_name("Reshape"))
