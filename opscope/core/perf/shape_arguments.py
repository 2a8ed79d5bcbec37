"""Separate an op's data from the integer tensors that only give a size or an axis (TensorFlow, ONNX).

The positions are from the ops' definitions (the argument names in TensorFlow's op_def, ONNX's operators).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from opscope.core.schema import INTEGERS, Arg, OpCall, TensorSpec

from .registry import words

#: Ops by the positions of their size and axis arguments; -1 is the last. Frameworks may share a name.
_BY_PLACE: Final[Mapping[tuple[int, ...], str]] = {
    (-1,): """
        ConcatV2
    """,
    (0,): """
        AvgPool3DGrad AvgPoolGrad Concat ConstantOfShape Conv2DBackpropInput
        Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput Empty EmptyTensorList Fill
        ParameterizedTruncatedNormal QuantizedConcat RandomGamma RandomPoisson
        RandomPoissonV2 RandomStandardNormal RandomUniform RandomUniformInt
        StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2
        StatelessRandomGammaV3 StatelessRandomNormal StatelessRandomNormalV2
        StatelessRandomPoisson StatelessRandomUniform StatelessRandomUniformFullInt
        StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
        StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal
        StatelessTruncatedNormalV2 TensorListReserve TruncatedNormal
    """,
    (0, 1): """
        Split
    """,
    (0, 1, 2, 3): """
        StridedSliceGrad
    """,
    (1,): """
        All Any ArgMax ArgMin BatchToSpace Bincount BroadcastTo ConjugateTranspose
        Conv2DBackpropFilter Conv3DBackpropFilterV2 CumSum Cumprod Cumsum
        CumulativeLogsumexp DenseBincount DepthwiseConv2dNativeBackpropFilter EuclideanNorm
        Expand ExpandDims FusedPadConv2D MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
        MatrixDiagV3 Max Mean Min MirrorPad MirrorPadGrad Multinomial OneHot PadV2 Prod
        QuantizedReshape QuantizedResizeBilinear RandomCrop ReduceL2 ReduceMax ReduceMean
        ReduceMin ReduceProd ReduceSum Reshape ResizeBicubic ResizeBilinear
        ResizeNearestNeighbor ResizeNearestNeighborGrad ReverseV2 ScaleAndTranslate
        SpaceToBatch Squeeze StatelessMultinomial Sum TensorListConcatV2
        TensorListFromTensor TensorListPopBack TensorListResize TensorListSplit
        TensorListStack Tile TopK TopKV2 Transpose Trilu UniqueV2 UniqueWithCountsV2
        UnravelIndex Unsqueeze
    """,
    (1, 2): """
        BatchToSpaceND FusedResizeAndPadConv2D Roll SpaceToBatchND SplitV
    """,
    (1, 2, 3): """
        ResourceStridedSliceAssign StridedSlice StridedSliceAssign TensorStridedSliceUpdate
    """,
    (1, 2, 3, 4): """
        Slice
    """,
    (1, 3): """
        Pad
    """,
    (2,): """
        FFTND GatherV2 IFFTND IRFFTND ImageProjectiveTransformV2 ImageProjectiveTransformV3
        InTopKV2 MatrixSetDiagV2 MatrixSetDiagV3 MaxPoolV2 RFFTND ScatterNd SegmentMaxV2
        SegmentMinV2 SegmentProdV2 SegmentSumV2 StatefulRandomBinomial TensorListGather
        TensorListGetItem TensorListScatter TensorListScatterV2 UnsortedSegmentMax
        UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
    """,
    (3,): """
        Resize SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments
        SparseSegmentSumWithNumSegments
    """,
    (4,): """
        MaxPoolGradV2
    """,
}
PLACES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {name: places for places, names in _BY_PLACE.items() for name in words(names)}
)
#: Prefixes of oneDNN's rewrites of TensorFlow's ops.
_REWRITTEN: Final = ("_MklNative", "_Mkl")


def data_arguments(call: OpCall) -> tuple[Arg, ...]:
    """Return the inputs without those that only give a size or an axis."""
    name = call.name
    for prefix in _REWRITTEN:
        name = name.removeprefix(prefix)
    places = PLACES.get(name.removesuffix("WithBias"))
    if places is None:
        return call.inputs
    count = len(call.inputs)
    excluded = {axis % count for axis in places if -count <= axis < count}
    return tuple(
        arg
        for number, arg in enumerate(call.inputs)
        if number not in excluded or not (isinstance(arg, TensorSpec) and arg.dtype in INTEGERS)
    )
