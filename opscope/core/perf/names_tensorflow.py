"""TensorFlow's other names: oneDNN's kernels, random numbers, and the nodes that only run a graph."""

from __future__ import annotations

from typing import Final

from opscope.core.schema import OpCall

from . import graph_layers, graph_names, graph_ops
from .graph_names import as_name
from .registry import Cost, lookup, op, words

#: Imported first: what is registered here is what these have registered.
NEEDED: Final = (graph_layers, graph_names, graph_ops)

#: Ops that oneDNN has kernels for: ``_MklNativeMaxPool`` is ``MaxPool``.
_ONEDNN: Final = words(
    """
    MaxPool MaxPoolGrad MaxPool3D MaxPool3DGrad AvgPool AvgPoolGrad AvgPool3D AvgPool3DGrad Softmax
    Transpose Relu ReluGrad Relu6 Relu6Grad Elu EluGrad LeakyRelu LeakyReluGrad Tanh TanhGrad Add
    AddV2 AddN Sub Mul Maximum Squared SquaredDifference Concat ConcatV2 Slice Reshape Identity
    Conv2D Conv3D Conv2DBackpropInput Conv2DBackpropFilter Conv3DBackpropInputV2
    Conv3DBackpropFilterV2 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput
    DepthwiseConv2dNativeBackpropFilter MatMul BatchMatMul BatchMatMulV2 FusedBatchNorm
    FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
    Conv2DBackpropFilterWithBias Conv3DBackpropFilterWithBias LayerNorm Swish Quantize Dequantize
    """
)
_SAME: Final = {
    "StatelessTruncatedNormalV2": "TruncatedNormal",
    "StatelessTruncatedNormal": "TruncatedNormal",
    "StatelessRandomUniformInt": "RandomUniformInt",
    "StatelessRandomUniformIntV2": "RandomUniformInt",
    "StatelessRandomNormal": "RandomStandardNormal",
    "BitwiseAnd": "LogicalAnd",
    "BitwiseOr": "LogicalOr",
    "BitwiseXor": "LogicalOr",
    "LeftShift": "LogicalAnd",
    "RightShift": "LogicalAnd",
}
#: Arguments, results, control flow, iterators, handles: no element is computed.
_RUNS: Final = words(
    """
    _Send _Recv _HostSend _HostRecv Enter Exit Merge Switch RefEnter RefExit RefMerge RefSwitch
    NextIteration LoopCond ControlTrigger VarIsInitializedOp VariableShape DestroyResourceOp
    IteratorGetNext IteratorGetNextSync IteratorGetNextAsOptional IteratorV2 Iterator MakeIterator
    AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 OneShotIterator DeleteIterator
    IteratorToStringHandle OptionalHasValue OptionalGetValue OptionalFromValue OptionalNone
    StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomGetAlg
    TensorSliceDataset RangeDataset RepeatDataset PrefetchDataset MapDataset ParallelMapDataset
    ParallelMapDatasetV2 BatchDatasetV2 ShuffleDatasetV3 ZipDataset FlatMapDataset TakeDataset
    TensorDataset OptionsDataset ModelDataset OptimizeDatasetV2 MaxIntraOpParallelismDataset
    PrivateThreadPoolDataset RewriteDataset CacheDataset CacheDatasetV2 ConcatenateDataset
    TensorListReserve TensorListLength EmptyTensorList TensorListElementShape DisableCopyOnRead
    StatelessWhile StatelessIf Case StatelessCase ReadVariableXlaSplitND
    """
)

for _name in _ONEDNN:
    for _prefix in ("_Mkl", "_MklNative"):
        _known = lookup(_name)
        if _known is not None and lookup(_prefix + _name) is None:
            op(_prefix + _name, family=_known.family, source=f"as {_name}")(as_name(_name))
for _name, _other in _SAME.items():
    _known = lookup(_other)
    if _known is not None and lookup(_name) is None:
        op(_name, family=_known.family, source=f"as {_other}")(as_name(_other))


@op(*(name for name in _RUNS if lookup(name) is None), family="view", view=True,
    source="computes nothing")  # fmt: skip
def runs(call: OpCall) -> Cost:
    """A node that only runs the graph."""
    return Cost()
