"""Cost models of graph nodes that no ATen op covers: arithmetic, reductions, transforms and copies.

Names of TensorFlow, Keras, ONNX and MindSpore overlap (``MatMul``, ``Conv2D``, ``Add``), so in this package
each name has one model for all frameworks. Where the framework matters, parameters show it; where no
parameter gives the layout, shapes do. Results are usually recorded, so most counts need no attribute.
"""

from __future__ import annotations

from opscope.core.perf.groups import by_group
from opscope.core.perf.ops.fft import transform_flops
from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    Part,
    as_ints,
    broadcast,
    cost,
    distinct_tensors,
    need,
    need_output,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
    span,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec


@op(
    "AddN",
    "Accumulate",
    "AccumulateNV2",
    family="elementwise",
    source="n − 1 additions per element",
)
def add_n(call: OpCall) -> Cost:
    """The sum of n tensors."""
    operands = tensors(call)
    x = need(call, 0, "operand")
    flops = (len(operands) - 1) * numel(x)
    return cost(operands, [output(call) or x], vector=flops, dtype=x.dtype)


@op("SquaredDifference", "SquareSumV1", family="elementwise", source="2 per element")
def squared_difference(call: OpCall) -> Cost:
    """A subtraction and a square."""
    operands = tensors(call)[:2]
    need(call, 0, "operand")
    shape = broadcast(*map(sizes, operands))
    out = output(call) or TensorSpec(promote(operands), shape)
    return cost(operands, [out], vector=2 * product(shape), dtype=promote(operands))


@op("RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad", "AbsGrad",
    family="elementwise",
    source="rsqrt 4 per element (cube 2, scale, product), root 2, reciprocal 3")  # fmt: skip
def root_grad(call: OpCall) -> Cost:
    """−½·y³·dy, ½·dy/y, −y²·dy."""
    y = need(call, 0, "result")
    each = {"RsqrtGrad": 4, "SqrtGrad": 2, "ReciprocalGrad": 3, "InvGrad": 3}.get(call.name, 1)
    return cost(tensors(call)[:2], [output(call) or y], vector=each * numel(y), dtype=y.dtype)


@op("ComplexMul", "ComplexMulConj", family="elementwise", source="6 per complex product")
def complex_product(call: OpCall) -> Cost:
    """Four products and two sums for each pair of real and imaginary parts."""
    a, b = need(call, 0, "operand"), need(call, 1, "operand")
    out = output(call) or a
    return cost([a, b], [out], vector=3 * numel(out), dtype=promote([a, b]))


@op("BiasGelu", "FastGelu", "BiasSplitGelu", "RotaryEmbedding", "BiasDropout",
    family="activation", source="bias 1 and GELU 5 per element (tanh form 8); rotary 3")  # fmt: skip
def fused_activation(call: OpCall) -> Cost:
    """ONNX Runtime's fusions of an addition and an activation."""
    x = need(call, 0, "input")
    each = {"BiasGelu": 6, "FastGelu": 9, "BiasSplitGelu": 7, "RotaryEmbedding": 3}.get(
        call.name, 3
    )
    out = output(call) or x
    return cost(tensors(call), [out], vector=each * numel(out), dtype=x.dtype)


@op(
    "Swiglu",
    "SwiGLU",
    "SwigluGrad",
    family="activation",
    source="SiLU 5 and a product 1; gradient 12",
    variants={"grad": "SwigluGrad"},
)
def swiglu(call: OpCall) -> Cost:
    """One half of the input gates the other half."""
    operands = tensors(call)
    x = need(call, 0, "input")
    back = variant(call, "grad")
    both_halves = operands[1] if back and len(operands) > 1 else x
    half = numel(both_halves) // 2
    out: Part = output(call) or (both_halves if back else TensorSpec(x.dtype, (half,)))
    return cost(distinct_tensors(call), [out], vector=(12 if back else 6) * half, dtype=x.dtype)


@op("ReduceL1", "ReduceSumSquare", "ReduceLogSum", family="reduction",
    source="1 absolute value or square per element, inputs − outputs additions; 1 logarithm per result",
    variants={"log_sum": "ReduceLogSum"})  # fmt: skip
def reduce_more(call: OpCall) -> Cost:
    """ONNX's reductions with a function of each element before the sum, or of the result after it."""
    x = need(call, 0, "input")
    out = need_output(call, "the trace does not record which dimensions are reduced")
    each = 1 if variant(call, "log_sum") else 2
    after = numel(out) if variant(call, "log_sum") else 0
    flops = max(each * numel(x) - numel(out), 0) + after
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op(
    *words("SegmentSum SegmentSumV2 SegmentMean SegmentMax SegmentMaxV2 SegmentMin SegmentMinV2 "
           "SegmentProd SegmentProdV2 UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd"),
    family="reduction",
    source="inputs − outputs operations; a mean divides",
    variants={"mean": "SegmentMean"})  # fmt: skip
def segments(call: OpCall) -> Cost:
    """The rows of each segment are reduced to one row."""
    x = need(call, 0, "data")
    out = need_output(call, "the number of segments is data that no trace records")
    shape = sizes(x)
    rows, groups = (shape[0], sizes(out)[0]) if shape and sizes(out) else (numel(x), numel(out))
    each, note = by_group(rows, groups, "segments", mean=variant(call, "mean"))
    flops = each * (numel(x) // max(rows, 1))
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype, note=note)


@op(
    *words("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN SparseSegmentSumWithNumSegments "
           "SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments SparseSegmentSumGrad "
           "SparseSegmentMeanGrad SparseSegmentSqrtNGrad SparseSegmentSumGradV2 "
           "SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2"),
    family="embedding",
    source="1 addition per gathered element except the first of its segment; a mean divides",
    variants={"grad": "*Grad*", "sum": "*Sum*"})  # fmt: skip
def sparse_segments(call: OpCall) -> Cost:
    """The rows that the indices select, added by segment."""
    x, indices = need(call, 0, "data"), need(call, 1, "indices")
    out = need_output(call, "the number of segments is data that no trace records")
    width = product(sizes(x)[1:])
    gathered = numel(indices) * width
    back = variant(call, "grad")
    plain = variant(call, "sum")
    if back:
        flops, note = gathered * (1 if plain else 2), ""
    else:
        groups = sizes(out)[0] if sizes(out) else 1
        each, note = by_group(numel(indices), groups, "segments", mean=not plain)
        flops = each * width
    return cost(
        [span(x, min(gathered, numel(x))), *tensors(call)[1:3]],
        [out],
        vector=flops,
        dtype=x.dtype,
        note=note,
    )


@op("ScatterNd", family="index", source="1 addition per value, into zeros")
def scatter_nd(call: OpCall) -> Cost:
    """Operands: indices, updates, the shape of the result."""
    indices, updates = need(call, 0, "indices"), need(call, 1, "updates")
    out = output(call)
    return cost(
        [indices, updates],
        None if out is None else [out],
        vector=numel(updates),
        dtype=updates.dtype,
        reason=NO_OUTPUTS,
    )


@op("DFT", "STFT", "Rfft", "Irfft", "FFTND", "IFFTND", "RFFTND", "IRFFTND", "FFT3D", "IFFT3D", "RFFT3D",
    "IRFFT3D", "BatchFFT3D", "BatchIFFT3D", family="fft", source="5·N·log2 N per complex transform",
    variants={"nd": "*ND", "real": "Rfft Irfft *RFFT*", "irfft": "Irfft* IRFFT*", "3d": "*3D*"})  # fmt: skip
def transform(call: OpCall) -> Cost:
    """A transform over the last dimension, the last three, or ONNX's ``axis``; a real one costs half."""
    x, out = need(call, 0, "input"), output(call)
    if out is None or call.name == "STFT" or variant(call, "nd"):
        raise CannotKnow("the length of the transform is data that no trace records")
    shape = sizes(out) if variant(call, "irfft") else sizes(x)
    if call.name == "DFT":  # the last dimension holds real and imaginary parts
        axis = as_ints(call.param("axis"))
        real = shape[-1] == 1
        shape = shape[:-1]
        points = shape[(axis or (-1,))[0]]
    else:
        real = variant(call, "real")
        points = product(shape[-3:]) if variant(call, "3d") else shape[-1]
    batch = product(shape) // max(points, 1)
    dtype = x.dtype
    return cost([x], [out], vector=transform_flops(batch, points, real), dtype=dtype)


@op(*words("Split SplitV SplitToSequence Unpack Unstack Slice StridedSlice Crop "
           "StridedSliceGrad SliceGrad Im2Col Roll SpaceToBatch TensorListFromTensor "
           "TensorListStack TensorListGetItem TensorListSetItem TensorListPushBack "
           "TensorListPopBack TensorListGather TensorListScatterIntoExistingList IteratorGetNext"),
    family="copy", source="the selected elements are read and written once")  # fmt: skip
def take(call: OpCall) -> Cost:
    """The number of elements read equals the number written."""
    operands, out = tensors(call), outputs(call)
    if not operands or not out:
        raise CannotKnow(NO_OUTPUTS)
    x = operands[0]
    return cost([span(x, min(sum(map(numel, out)), numel(x)))], out)


@op(*words("Assign AssignVariableOp StridedSliceAssign ResourceStridedSliceAssign "
           "TensorStridedSliceUpdate"),
    family="copy", source="the value is read, and as many elements are written",
    variants={"tensor": "TensorStridedSliceUpdate"})  # fmt: skip
def assign(call: OpCall) -> Cost:
    """The value is the last operand; if the result is a new tensor, the whole target is copied too."""
    operands = tensors(call)
    if len(operands) < 2:
        raise CannotKnow(NO_SHAPES)
    target, value = operands[0], operands[-1]
    if variant(call, "tensor"):
        return cost([target, value], [output(call) or target])
    return cost([value], [span(target, numel(value))])


@op("SequenceConstruct", "SequenceInsert", "SequenceAt", "SequenceErase", "ConcatFromSequence",
    "ImageDecoder", "TfIdfVectorizer", "Tokenizer", "StringConcat", "StringNormalizer", "MurmurHash3",
    family="host", source="work of the host: no FLOPs, bytes not known")  # fmt: skip
def sequence(call: OpCall) -> Cost:
    """Work on lists of tensors or on texts."""
    return cost(None, None, reason="work of the host: the shapes do not show its bytes")


@op("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4",
    "NonMaxSuppressionV5", "NonMaxSuppressionWithOverlaps", "CombinedNonMaxSuppression",
    "torchvision::nms", "NMSWithMask", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch",
    "CTCGreedyDecoder", "CTCBeamSearchDecoder", family="search",
    source="the number of comparisons is data")  # fmt: skip
def search(call: OpCall) -> Cost:
    """The number of steps depends on the data."""
    raise CannotKnow("the number of comparisons is data that no trace records")
