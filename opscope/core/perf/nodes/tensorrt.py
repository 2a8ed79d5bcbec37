"""Cost models of TensorRT's layers, from the description by the engine inspector. A layer fuses others.
Its products are counted in full; elementwise operations fused behind a product (bias, activation, an added
residual) are not counted, as for the ops of other frameworks.
"""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    Part,
    as_ints,
    cost,
    need,
    numel,
    outputs,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec
from opscope.core.tensorrt_layers import PREFIX, QUANTIZED


def _name(names: str) -> tuple[str, ...]:
    return tuple(PREFIX + name for name in words(names))


def _precision(call: OpCall) -> str:
    precision = call.param("precision")
    return precision if isinstance(precision, str) else "?"


def _whole(call: OpCall) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs with stored weights, and outputs. Raises CannotKnow if either side was not recorded."""
    results = outputs(call)
    if not results:
        raise CannotKnow(NO_OUTPUTS)
    return tensors(call), results


# ------------------------------------------------------------------------------ products


@op(
    *_name("Convolution Deconvolution"),
    family="conv",
    source="2·outputs·(weights per output channel), from kernel, groups and channels",
    variants={"transposed": PREFIX + "Deconvolution"},
)
def convolution(call: OpCall) -> Cost:
    """2 FLOPs for each output (of a deconvolution each input) and each weight that it meets."""
    given, results = _whole(call)
    kernel, maps = as_ints(call.param("kernel")), call.param("out_maps")
    groups = call.param("groups", 1)
    if kernel is None or not isinstance(maps, int) or not isinstance(groups, int) or groups < 1:
        raise CannotKnow("the engine does not state the layer's kernel and channels")
    x = sizes(need(call, 0, "input"))
    axis = len(x) - len(kernel) - 1
    if axis < 0:
        raise CannotKnow(f"{list(x)} is no input of a convolution with the kernel {list(kernel)}")
    if variant(call, "transposed"):
        flops = 2 * product(x) * (maps // groups) * product(kernel)
    else:
        spatial = _spatial(call, x[axis + 1 :], kernel, sizes(results[0])[axis + 1 :])
        each = _weights_each(call, maps, x[axis] // groups * product(kernel))
        flops = 2 * product(x[:axis]) * maps * product(spatial) * each
    return cost([*given], [*results], matrix=flops, dtype=_precision(call))


def _weights_each(call: OpCall, maps: int, expected: int) -> int:
    """Return the weights of one output channel. The stated count must agree, or the channels are padded."""
    count = call.param("weights")
    if not isinstance(count, int) or count == expected * maps:
        return expected
    if count > 0 and maps and count % maps == 0 and count < expected * maps:
        return count // maps  # the input is padded to a vector of channels, the weights are not
    raise CannotKnow(
        f"the engine states {count:,} weights, the layer's sizes give {expected * maps:,}"
    )


def _spatial(
    call: OpCall, into: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the sizes of the convolution's own result: a layer may pool it before it is written."""
    rank = len(kernel)
    stride, dilation = (as_ints(call.param(key)) or (1,) * rank for key in ("stride", "dilation"))
    before = as_ints(call.param("padding")) or (0,) * rank
    after = as_ints(call.param("padding_after")) or before
    if {len(stride), len(dilation), len(before), len(after), len(into)} != {rank}:
        return out
    padding = tuple(
        max((n + p + q - d * (k - 1) - 1) // max(s, 1) + 1, 0)
        for n, p, q, d, k, s in zip(into, before, after, dilation, kernel, stride, strict=True)
    )
    pools = "pool" in str(call.param("type", "")).lower()
    return (
        padding if pools and call.param("padding_mode") in (None, "kEXPLICIT_ROUND_DOWN") else out
    )


@op(
    *_name("MatrixMultiply MatMul Gemm GEMM FullyConnected gemm gemm_act gemv"),
    family="gemm",
    source="2·M·N·K, K the size that both factors share and the result has not",
)
def matmul(call: OpCall) -> Cost:
    """2·outputs·K; a second factor that the engine holds and does not list is taken from the first's rows."""
    given, results = _whole(call)
    return cost(given, results, matrix=2 * numel(results[0]) * _inner(call), dtype=_precision(call))


def _inner(call: OpCall) -> int:
    """Return the size over which a product adds up. Raises CannotKnow if the shapes do not show it."""
    given, results = _whole(call)
    out = sizes(results[0])
    factors = [sizes(operand) for operand in given if len(operand.shape) >= 1]
    weights = call.param("weights")
    if isinstance(weights, int) and weights and out and weights % max(out[-1], 1) == 0:
        return weights // max(out[-1], 1)
    inner_sizes: set[int] = set()
    for index, left in enumerate(factors):
        for other in factors[index + 1 :]:
            inner_sizes |= _share(left, other, out) | _share(other, left, out)
    if len(inner_sizes) == 1:
        return inner_sizes.pop()
    large = [factor for factor in factors if len(factor) >= 2]
    if not inner_sizes and len(large) == 1 and len(out) >= 2 and large[0][:-1] == out[:-1]:
        return large[0][-1]
    if not inner_sizes and len(large) == 1 and len(out) == 2 and large[0][0] == out[0]:
        return product(large[0][1:])
    raise CannotKnow("the shapes do not tell the inner size of the product")


def _share(left: tuple[int, ...], right: tuple[int, ...], out: tuple[int, ...]) -> set[int]:
    """The inner sizes K that fit [M, K] (or its transpose) × [K, N] (or its transpose) → ``out``."""
    if len(left) < 2 or len(right) < 2 or len(out) < 2:
        return set()
    return {
        k
        for m, k in (left[-2:], left[:-3:-1])
        for j, n in (right[-2:], right[:-3:-1])
        if k == j and (m, n) == out[-2:]
    }


# ------------------------------------------------------------------------------ elementwise and the like


@op(
    *_name("PointWise PointWiseV2 ElementWise Activation ActivationLayer Unary Select Scale"),
    family="elementwise",
    source="the stated number of operations per output",
    variants={"single": "*ElementWise *Activation *ActivationLayer *Unary *Select", "scale": "*Scale"},
)  # fmt: skip
def pointwise(call: OpCall) -> Cost:
    """Each stated operation once per output; a scale multiplies and adds."""
    given, results = _whole(call)
    op_count = call.param("operations")
    if not isinstance(op_count, int):
        if not variant(call, "single") and not variant(call, "scale"):
            raise CannotKnow("the engine does not state how many operations the layer fuses")
        op_count = 2 if variant(call, "scale") else 1
    return cost(given, results, vector=op_count * numel(results[0]), dtype=_precision(call))


@op(*_name("Pooling"), family="pooling",
    source="per output k − 1 comparisons, or k − 1 additions and a division")  # fmt: skip
def pooling(call: OpCall) -> Cost:
    """The operations on the window of each output."""
    given, results = _whole(call)
    window = as_ints(call.param("window"))
    if not window:
        raise CannotKnow("the engine does not state the size of the window")
    each = product(window) - (1 if call.param("pooling") == "MAX" else 0)
    return cost(given, results, vector=each * numel(results[0]), dtype=_precision(call))


@op(*_name("SoftMax"), family="softmax", source="5 per element less 2 per row")
def softmax(call: OpCall) -> Cost:
    """As ``aten::softmax``; ``axes`` is a set of bits."""
    given, results = _whole(call)
    shape, bits = sizes(results[0]), call.param("axes")
    if not isinstance(bits, int) or bits < 0:
        raise CannotKnow("the engine does not state the axes")
    row = product(size for axis, size in enumerate(shape) if bits >> axis & 1)
    rows = product(shape) // max(row, 1)
    return cost(given, results, vector=5 * product(shape) - 2 * rows, dtype=_precision(call))


@op(*_name("Reduce"), family="reduction", source="one operation per input, less one per output")
def reduce(call: OpCall) -> Cost:
    """All inputs of an output are joined, one by one."""
    given, results = _whole(call)
    vector = max(numel(need(call, 0, "input")) - numel(results[0]), 0)
    return cost(given, results, vector=vector, dtype=_precision(call))


# ------------------------------------------------------------------------------ data that moves


@op(
    *_name("Quantize Dequantize QuantizeLinear DequantizeLinear"),
    family="quantize",
    source="quantise 3 per element (scale, round, clamp), dequantise 2 (subtract, scale)",
)
def quantized(call: OpCall) -> Cost:
    """Quantise or dequantise; between two quantised types, both."""
    given, results = _whole(call)
    both = bool(given) and {given[0].dtype, results[0].dtype} <= QUANTIZED
    each = 5 if both else 3 if call.param("role") == "quantize" else 2
    return cost(given[:1], results, vector=each * numel(results[0]), dtype=_precision(call))


@op(
    *_name("Reformat"),
    family="copy",
    source="0: elements change their arrangement or their dtype",
)
def reformat(call: OpCall) -> Cost:
    """No arithmetic: the input is read and the output is written."""
    given, results = _whole(call)
    return cost(given[:1], results, dtype=_precision(call))


@op(
    *_name("Shuffle Slice Concat Concatenation Padding Gather Cast Identity Constant Shape Fill"),
    family="copy",
    source="0: data moves",
)
def moved(call: OpCall) -> Cost:
    """No arithmetic: as many elements are read as are written."""
    results = outputs(call)
    if not results:
        raise CannotKnow(NO_OUTPUTS)
    return cost(list[Part](results), results)


@op(*_name("NoOp wait signal"), family="view", source="0: nothing runs", view=True)
def nothing(call: OpCall) -> Cost:
    """The engine keeps the layer's name and computes nothing for it; some wait for another stream."""
    return Cost()


# ------------------------------------------------------------------------------ Myelin

#: Parts of generated kernels that compute one operation for each element.
_EACH: Final = frozenset(
    words(
        "Add Sub Mul Div Neg Abs Exp Log Sqrt Rsqr Rsqrt Rcp Recip Pow Powr Relu Sigm Sigmoid Tanh Erf"
        " Gelu Max Min Sin Cos Sele Select Cmp Eq Gt Lt Ge Le And Or Not Xor Floo Ceil Roun Clip Sqr Fma"
    )
)
#: Parts that move or retype elements.
_MOVES: Final = frozenset(
    words(
        "Cast Cas Resh Res Tran Trans Tra Move Mov Slic Sli Conc Con Cat Repl Rep Broa Bro Gath Copy Pad"
        " Unsq Sque"
    )
)
NOT_STATED: Final = (
    "a kernel generated by Myelin: the engine names its parts ({}) and not the shapes between them"
)


@op(
    *_name("kgen"),
    family="fused",
    source="the elementwise parts that the kernel's name lists, per output",
)
def generated(call: OpCall) -> Cost:
    """Known if every part is elementwise: one operation per element and part. (The trace does not state
    the size of a reduction.)"""
    given, results = _whole(call)
    parts = as_texts(call)
    if not parts:
        raise CannotKnow("a kernel generated by Myelin, whose parts the engine does not name")
    if not set(parts) <= _EACH | _MOVES:
        raise CannotKnow(NOT_STATED.format(", ".join(parts)))
    op_count = sum(part in _EACH for part in parts)
    largest = max(numel(result) for result in results)
    if op_count and any(numel(operand) > largest for operand in given):
        raise CannotKnow(NOT_STATED.format(", ".join(parts)))
    return cost(given, results, vector=op_count * largest, dtype=_precision(call))


@op(
    *_name("fusion"),
    family="gemm",
    source="2·M·N·K where the name lists one product (Fc), K from the shapes",
)
def fusion(call: OpCall) -> Cost:
    """Myelin's product with the operations after it."""
    given, results = _whole(call)
    parts = as_texts(call)
    tactic = str(call.param("tactic", "")).lower()
    if parts.count("Fc") == 1 or (not parts and "gemm" in tactic and "mha" not in tactic):
        return cost(
            given, results, matrix=2 * numel(results[0]) * _inner(call), dtype=_precision(call)
        )
    raise CannotKnow(NOT_STATED.format(", ".join(parts) or "none"))


def as_texts(call: OpCall) -> tuple[str, ...]:
    """Return the parts that the layer's name lists."""
    parts = call.param("parts")
    return tuple(str(part) for part in parts) if isinstance(parts, tuple) else ()


_UNKNOWN: Final = (
    (
        "fused",
        "Myelin ForeignNode",
        "a block that Myelin compiled: the engine states nothing of what is inside",
    ),
    (
        "fused",
        "PluginV2 PluginV2DynamicExt PluginV2Ext PluginV2IOExt PluginV3 Plugin",
        "a plugin: the engine does not state what it computes",
    ),
    (
        "interpolation",
        "Resize",
        "the engine does not state how many points each output is made of",
    ),
    (
        "session",
        "execute execute_v2 execute_async execute_async_v2 execute_async_v3",
        "it runs the engine's layers, whose costs engine_layers() has",
    ),
)


def _unknown(family: str, names: str, reason: str) -> None:
    @op(*_name(names), family=family, source=f"null: {reason}")
    def model(call: OpCall) -> Cost:
        raise CannotKnow(reason)


for _family, _names, _reason in _UNKNOWN:
    _unknown(_family, _names, _reason)
