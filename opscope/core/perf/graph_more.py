"""Graph nodes that no other framework has as one op: TensorFlow's cells, segments, filters; ONNX's own."""

from __future__ import annotations

from opscope.core.schema import OpCall, TensorSpec

from .registry import CannotKnow, Cost, op, words
from .shapes import (
    Part,
    as_ints,
    cost,
    distinct_tensors,
    need,
    numel,
    output,
    outputs,
    product,
    promote,
    sizes,
    span,
    tensors,
)

_NO_OUTPUTS = "the trace has no outputs"


def _written(call: OpCall) -> list[Part] | None:
    found = outputs(call)
    return None if found is None else [*found]


# ------------------------------------------------------------------------------- recurrent


@op(
    *words("LSTMBlockCell LSTMBlockCellGrad BlockLSTM BlockLSTMV2 BlockLSTMGrad BlockLSTMGradV2 "
           "GRUBlockCell GRUBlockCellGrad BasicLSTMCell DynamicRNN"),
    family="recurrent",
    source="2 a weight and token; gates LSTM 22, GRU 17 a unit; gradients twice",
)  # fmt: skip
def block_cell(call: OpCall) -> Cost:
    """Input [B, I] or [T, B, I], one weight [I + H, 4·H] (GRU: [I + H, 2·H] and [I + H, H])."""
    found = tensors(call)
    whole = call.name.startswith(("Block", "Dynamic"))
    x = next((t for t in found if len(t.shape) == (3 if whole else 2)), None)
    if x is None:
        raise CannotKnow("the trace has no shape for the input")
    inner = sizes(x)[-1]
    gru = call.name.startswith("GRU")
    flat = [sizes(t) for t in found if t is not x and len(t.shape) == 2]
    units = {w[1] for w in flat if w[0] == sizes(x)[-2]}  # those of the states, [B, H]
    gates_of = (1, 2) if gru else (4,)
    shapes = [w for w in flat if (h := w[0] - inner) in units and w[1] in [g * h for g in gates_of]]
    if len(shapes) != (2 if gru else 1):
        raise CannotKnow("the trace has no shape for the weights, or several that could be them")
    hidden = shapes[0][0] - inner
    tokens = product(sizes(x)[:-1])
    times = 2 if "Grad" in call.name else 1
    # a gradient has the products of its data alone: the weights' are an op of their own
    matrix = 2 * tokens * sum(map(product, shapes))
    if "BlockLSTMGrad" in call.name:
        matrix *= 2
    gates = 22 if "LSTM" in call.name else 17
    return cost(
        distinct_tensors(call),
        _written(call),
        matrix=matrix if "CellGrad" not in call.name or "GRU" in call.name else 0,
        vector=times * gates * hidden * tokens,
        dtype=x.dtype,
        reason=_NO_OUTPUTS,
    )


# -------------------------------------------------------------------- segments and sparse


@op(
    *words("SegmentSum SegmentSumV2 SegmentMean SegmentMax SegmentMaxV2 SegmentMin SegmentMinV2 "
           "SegmentProd SegmentProdV2 UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd"),
    family="reduction",
    source="inputs − outputs operations; a mean divides",
)  # fmt: skip
def segments(call: OpCall) -> Cost:
    """Rows of one segment are brought together."""
    x, out = need(call, 0, "data"), output(call)
    if out is None:
        raise CannotKnow("how many segments there are is data that no trace records")
    divided = numel(out) if "Mean" in call.name else 0
    flops = max(numel(x) - numel(out), 0) + divided
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op(
    *words("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN SparseSegmentSumWithNumSegments "
           "SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments SparseSegmentSumGrad "
           "SparseSegmentMeanGrad SparseSegmentSqrtNGrad SparseSegmentSumGradV2 "
           "SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2"),
    family="embedding",
    source="an addition an element gathered, but the first of its segment; a mean divides",
)  # fmt: skip
def sparse_segments(call: OpCall) -> Cost:
    """The rows of the indices, added by segment."""
    x, indices, out = need(call, 0, "data"), need(call, 1, "indices"), output(call)
    if out is None:
        raise CannotKnow("how many segments there are is data that no trace records")
    width = product(sizes(x)[1:])
    gathered = numel(indices) * width
    back = "Grad" in call.name
    added = gathered if back else max(gathered - numel(out), 0)
    scaled = 0 if "Sum" in call.name else gathered if back else numel(out)
    return cost(
        [span(x, min(gathered, numel(x))), *tensors(call)[1:3]],
        [out],
        vector=added + scaled,
        dtype=x.dtype,
    )


@op("ReduceL1", "ReduceSumSquare", "ReduceLogSum", family="reduction",
    source="an absolute value or a square an element, inputs − outputs additions; a logarithm a result")  # fmt: skip
def reduce_more(call: OpCall) -> Cost:
    """ONNX's reductions that compute an element before they add it, or the result after."""
    x, out = need(call, 0, "input"), output(call)
    if out is None:
        raise CannotKnow("the trace does not record which dimensions are reduced")
    each = 1 if "LogSum" in call.name else 2
    after = numel(out) if "LogSum" in call.name else 0
    flops = max(each * numel(x) - numel(out), 0) + after
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op("ScatterNd", family="index", source="an addition a value, into zeros")
def scatter_nd(call: OpCall) -> Cost:
    """Indices, updates, the shape of the result."""
    indices, updates = need(call, 0, "indices"), need(call, 1, "updates")
    out = output(call)
    return cost(
        [indices, updates],
        None if out is None else [out],
        vector=numel(updates),
        dtype=updates.dtype,
        reason=_NO_OUTPUTS,
    )


@op(
    "FFN",
    "FFNExt",
    "MatmulFfn",
    "MatmulQkv",
    family="gemm",
    source="2·rows·(elements of the weights)",
)
def products(call: OpCall) -> Cost:
    """One input by several weight matrices, side by side or one after the other."""
    x = need(call, 0, "input")
    weights = [t for t in tensors(call)[1:] if len(t.shape) == 2]
    if not weights or not sizes(x):
        raise CannotKnow("the trace has no shapes for the weights")
    rows = product(sizes(x)[:-1])
    flops = 2 * rows * sum(map(numel, weights))
    return cost(
        distinct_tensors(call), _written(call), matrix=flops, dtype=x.dtype, reason=_NO_OUTPUTS
    )


@op("CTCLoss", "CTCLossV2", "RNNTLoss", "EditDistance", family="loss",
    source="7 for each time step and state of the extended target")  # fmt: skip
def ctc(call: OpCall) -> Cost:
    """Sparse labels: how long each is, is data."""
    raise CannotKnow("the targets' lengths are data that no trace records")


@op("SparseTensorDenseMatMul", "SparseTensorDenseMatmul", family="gemm", source="2·stored·N")
def sparse_dense(call: OpCall) -> Cost:
    """Indices [stored, 2], values [stored], the shape, and the dense matrix."""
    indices, values, _, dense = (need(call, n, "operand") for n in range(4))
    right = sizes(dense)
    if len(right) != 2:
        raise CannotKnow(f"not a matrix: {list(right)}")
    wide = right[0] if call.param("adjoint_b") is True else right[1]
    stored = numel(values)
    read = min(stored * wide, numel(dense))
    out = output(call)
    return cost(
        [indices, values, span(dense, read)],
        None if out is None else [out],
        matrix=2 * stored * wide,
        dtype=promote([values, dense]),
        reason=_NO_OUTPUTS,
    )


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


@op(*_SPARSE_UPDATES, family="optimizer", source="FLOPs a parameter touched: optimizer.UPDATES")
def sparse_update(call: OpCall) -> Cost:
    """Only the rows of the indices: as many elements as the gradient has."""
    found = tensors(call)
    at = next(
        (n for n, t in enumerate(found) if n and t.dtype in ("i32", "i64") and len(t.shape) == 1),
        None,
    )
    if at is None:
        raise CannotKnow("the trace has no shape for the indices")
    grad, indices = found[at - 1], found[at]
    each = _SPARSE_UPDATES[call.name]
    states: list[Part] = [grad] * (1 + _ROWS_STATES[each])
    return cost([*states, grad, indices], states, vector=each * numel(grad), dtype=grad.dtype)


# ------------------------------------------------------------------------- filters, images


@op("Dilation2D", "Dilation2DBackpropInput", "Dilation2DBackpropFilter", family="pooling",
    source="an addition and a comparison a tap (TensorFlow's profiler: 2·k an output)")  # fmt: skip
def dilation(call: OpCall) -> Cost:
    """The largest of the sums of window and filter; a gradient finds it again and adds once."""
    x, w = need(call, 0, "input"), need(call, 1, "filter")
    taps = product(sizes(w)[:-1])
    found, out = tensors(call), output(call)
    if out is None:
        raise CannotKnow(_NO_OUTPUTS)
    back = "Backprop" in call.name and len(found) > 2
    places = numel(found[2]) if back else numel(out)
    flops = 2 * taps * places + (places if back else 0)
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op("LRN", "LRNGrad", family="norm",
    source="squares 1, the window's running sum 2, scale, add, power, divide 4; gradient 12")  # fmt: skip
def local_response(call: OpCall) -> Cost:
    """Each element divided by a power of its neighbourhood's energy."""
    x = need(call, 0, "input")
    each = 12 if "Grad" in call.name else 7
    return cost(distinct_tensors(call), [output(call) or x], vector=each * numel(x), dtype=x.dtype)


@op("TridiagonalSolve", "TridiagonalMatMul", "BandedTriangularSolve", family="linalg",
    source="Thomas: 3 a row to eliminate, 5 a row and right-hand side; product 5; 2·bands")  # fmt: skip
def banded(call: OpCall) -> Cost:
    """Diagonals [..., 3, n] (or [..., bands, n]) and right-hand sides [..., n, k]."""
    a, b = need(call, 0, "diagonals"), tensors(call)[-1]
    right = sizes(b)
    if len(right) < 2 or len(sizes(a)) < 1:
        raise CannotKnow("not a banded system")
    rows = product(right[:-1])
    k = right[-1]
    if call.name == "BandedTriangularSolve":
        bands = sizes(a)[-2] if len(sizes(a)) > 1 else 1
        flops = 2 * bands * rows * k
    else:
        flops = (5 * k + 3 if "Solve" in call.name else 5 * k) * rows
    return cost(distinct_tensors(call), [output(call) or b], vector=flops, dtype=b.dtype)


@op("AdjustContrast", "AdjustContrastv2", "RGBToHSV", "HSVToRGB", "AdjustHue", "AdjustSaturation",
    family="elementwise", source="contrast 4 an element; a colour space there 6, and back")  # fmt: skip
def colours(call: OpCall) -> Cost:
    """Contrast: mean 1, subtract, scale, add; hue and saturation go to HSV, change, and come back."""
    x = need(call, 0, "image")
    each = 4 if "Contrast" in call.name else 13 if "Adjust" in call.name else 6
    return cost([x], [output(call) or x], vector=each * numel(x), dtype=x.dtype)


@op("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3", family="recurrent",
    source="2 a weight and token, where the weights are not packed")  # fmt: skip
def cudnn_backprop(call: OpCall) -> Cost:
    """One buffer holds every weight; which part is which follows from no size."""
    raise CannotKnow("the weights are packed in one buffer")


# -------------------------------------------------------------------------------- ONNX's own


@op("Hardmax", family="softmax", source="a comparison an element")
def hardmax(call: OpCall) -> Cost:
    """The largest of each row."""
    x = need(call, 0, "input")
    return cost([x], [output(call) or x], vector=numel(x), dtype=x.dtype)


@op("MeanVarianceNormalization", "LpNormalization", "GlobalLpPool", family="norm",
    source="mean and variance 5 an element; a norm 3; a pooled norm 2")  # fmt: skip
def normalisation(call: OpCall) -> Cost:
    """By statistics of the whole, or by a norm."""
    x = need(call, 0, "input")
    each = {"M": 5, "L": 3, "G": 2}[call.name[0]]
    writes = _written(call) if call.name[0] == "G" else [output(call) or x]
    return cost([x], writes, vector=each * numel(x), dtype=x.dtype, reason=_NO_OUTPUTS)


@op(
    "RoiAlign",
    "MaxRoiPool",
    family="interpolation",
    source="bilinear 7 a sample; a maximum of a region",
)
def roi_align(call: OpCall) -> Cost:
    """``sampling_ratio``² samples a place, averaged; 0 lets the region's size decide, which is data."""
    x, out = need(call, 0, "input"), output(call)
    ratio = as_ints(call.param("sampling_ratio"))
    if out is None or not ratio or ratio[0] < 1 or call.name == "MaxRoiPool":
        raise CannotKnow("how many elements a region has is data that no trace records")
    samples = ratio[0] ** 2
    flops = (7 + 1) * samples * numel(out)
    return cost(distinct_tensors(call), [out], vector=flops, dtype=x.dtype)


@op("DFT", "STFT", "Rfft", "Irfft", "FFTND", "IFFTND", "RFFTND", "IRFFTND", "FFT3D", "IFFT3D", "RFFT3D",
    "IRFFT3D", "BatchFFT3D", "BatchIFFT3D", family="fft", source="5·N·log2 N a complex transform")  # fmt: skip
def transform(call: OpCall) -> Cost:
    """Over the last three dimensions, the last, or ONNX's ``axis``; real ones half."""
    from .fft import transform_flops

    x, out = need(call, 0, "input"), output(call)
    if out is None or call.name == "STFT" or call.name.endswith("ND"):
        raise CannotKnow("the length of the transform is data that no trace records")
    shape = sizes(out) if call.name.startswith(("Irfft", "IRFFT")) else sizes(x)
    if call.name == "DFT":  # the last dimension holds real and imaginary parts
        axis = as_ints(call.param("axis"))
        real = shape[-1] == 1
        shape = shape[:-1]
        points = shape[(axis or (-1,))[0]]
    else:
        real = "R" in call.name.upper().replace("BATCH", "").replace("IRFFT", "R").replace(
            "RFFT", "R"
        )
        points = product(shape[-3:]) if "3D" in call.name else shape[-1]
    batch = product(shape) // max(points, 1)
    dtype = x.dtype
    return cost([x], [out], vector=transform_flops(batch, points, real), dtype=dtype)


@op(
    "MoE",
    "QMoE",
    family="gemm",
    source="each token through its k experts, one product up, one down",
)
def experts(call: OpCall) -> Cost:
    """Input [T, H], router [T, E], weights [E, H, I] and [E, I, H]; ``k`` experts a token."""
    found = tensors(call)
    x = need(call, 0, "input")
    weights = [t for t in found[1:] if len(t.shape) == 3]
    k = as_ints(call.param("k"))
    if len(weights) < 2 or call.name == "QMoE" or k is None:
        raise CannotKnow(
            "the experts' weights are packed, or how many a token takes is not recorded"
        )
    pairs = product(sizes(x)[:-1]) * k[0]
    flops = 2 * pairs * sum(product(sizes(w)[1:]) for w in weights)
    return cost(distinct_tensors(call), [output(call) or x], matrix=flops, dtype=x.dtype)


@op("SkipGroupNorm", family="norm", source="group norm 7 an element, the skip connection 1")
def skip_norm(call: OpCall) -> Cost:
    """The residual's addition and the norm."""
    x = need(call, 0, "input")
    return cost(distinct_tensors(call), outputs(call) or [x], vector=8 * numel(x), dtype=x.dtype)


@op("ComplexMul", "ComplexMulConj", family="elementwise", source="6 a complex product")
def complex_product(call: OpCall) -> Cost:
    """Four products and two sums for each pair of real and imaginary parts."""
    a, b = need(call, 0, "operand"), need(call, 1, "operand")
    out = output(call) or a
    return cost([a, b], [out], vector=3 * numel(out), dtype=promote([a, b]))


@op("SequenceConstruct", "SequenceInsert", "SequenceAt", "SequenceErase", "ConcatFromSequence",
    "ImageDecoder", "TfIdfVectorizer", "Tokenizer", "StringConcat", "StringNormalizer", "MurmurHash3",
    family="host", source="no FLOPs of a model; its bytes are the host's own")  # fmt: skip
def sequence(call: OpCall) -> Cost:
    """A list of tensors, or texts."""
    return cost(None, None, reason="work of the host, whose bytes no size tells")


@op("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4",
    "NonMaxSuppressionV5", "NonMaxSuppressionWithOverlaps", "CombinedNonMaxSuppression",
    "torchvision::nms", "NMSWithMask", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch",
    "CTCGreedyDecoder", "CTCBeamSearchDecoder", family="search",
    source="how much is compared is data")  # fmt: skip
def search(call: OpCall) -> Cost:
    """It ends when the data say so."""
    raise CannotKnow("how much is compared is data that no trace records")


@op(
    "AdamNoUpdateParam",
    "EmbeddingApplyAdam",
    family="optimizer",
    source="FLOPs a parameter: optimizer.UPDATES",
)
def moments(call: OpCall) -> Cost:
    """The moments alone, or whole: as Adam's 12 a parameter."""
    x = max(tensors(call), key=numel, default=None)
    if x is None:
        raise CannotKnow("the trace has no shapes for the parameter")
    each = 10 if call.name == "AdamNoUpdateParam" else 12
    moved: list[Part] = [x, x]
    return cost([*moved, x], moved, vector=each * numel(x), dtype=x.dtype)


@op(
    "Swiglu",
    "SwiGLU",
    "SwigluGrad",
    family="activation",
    source="SiLU 5 and a product; gradient 12",
)
def swiglu(call: OpCall) -> Cost:
    """Half of the input gates the other half."""
    found = tensors(call)
    x = need(call, 0, "input")
    back = "Grad" in call.name
    whole = found[1] if back and len(found) > 1 else x
    half = numel(whole) // 2
    out: Part = output(call) or (whole if back else TensorSpec(x.dtype, (half,)))
    return cost(distinct_tensors(call), [out], vector=(12 if back else 6) * half, dtype=x.dtype)
