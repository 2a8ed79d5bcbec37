"""The parameters of a call, written as PyProf writes them: ``M=200,N=(35,20),K=200,fp32,``.

A text has no spaces. A matrix product has M, N and K, a convolution its sixteen sizes, an elementwise op its
tensors; PyProf writes ``type`` without a key. For ops that PyProf does not model, and for calls that do not
fit their op's form, all tensors are written. ``NONE`` is the text of a call without tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from opscope.core.pyprof.names import dtype, field, mod_and_op
from opscope.core.schema import Dim, OpCall, ParamValue, TensorSpec

NONE: Final = "na=na,"


@dataclass(frozen=True, slots=True)
class Use:
    """A call as one kernel uses it.

    ``marker``: the call is PyProf's, with Python's arguments, not an op of the framework. ``backward``: the
    kernel runs in the call's backward. ``sub``: the number of kernels of the same op that ran before it.
    ``product``: the kernel's own op is a matrix product (in a linear layer: not the op that adds the bias).
    """

    call: OpCall
    marker: bool = True
    backward: bool = False
    sub: int = 0
    product: bool = True

    @property
    def tensors(self) -> list[TensorSpec]:
        """The tensors of the call, in order; absent ones are left out."""
        return [leaf for leaf in self.call.input_leaves() if leaf is not None]

    def value(self, name: str, position: int) -> ParamValue:
        """Return a parameter by its name, or, for a marker, by its position."""
        param = self.call.param(name)
        return self.call.param(f"arg{position}") if param is None and self.marker else param


class _Unfit(Exception):
    """The call does not have the form of its op."""


def text(use: Use) -> str:
    """Return the parameters of a call."""
    module, op = mod_and_op(use.call.name, use.marker)
    family = _cell if use.marker and module in GATES and op == "forward" else _FAMILIES.get(op)
    try:
        return (family or _any)(use)
    except (_Unfit, IndexError, ValueError):
        return _any(use)


def _type(tensor: TensorSpec) -> str:
    return f"{dtype(tensor.dtype)},"


def _whole(tensor: TensorSpec) -> str:
    """``[35,20,200]fp32``"""
    return f"[{','.join(map(str, tensor.shape))}]{dtype(tensor.dtype)}"


def _any(use: Use) -> str:
    """All tensors: ``T=[(8,16),(32,16)],['float32','float32']``."""
    if not use.tensors and not use.marker:
        return NONE
    shapes = ",".join(field(tensor.shape) for tensor in use.tensors)
    types = ",".join(f"'{dtype(tensor.dtype, long=True)}'" for tensor in use.tensors)
    return f"T=[{shapes}],[{types}]"


def _one(use: Use) -> str:
    """The first tensor: ``T=(35,20,200),fp32,``."""
    tensor = use.tensors[0]
    return f"T={field(tensor.shape)},{_type(tensor)}"


def _pointwise(use: Use) -> str:
    """Every operand, numbers too: ``[35,20,200]fp32;[]fp32``."""
    operands = [_whole(tensor) for tensor in use.tensors]
    for name, value in use.call.params:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if name == "other" or (use.marker and name.startswith("arg")):
            operands.append("[]fp32" if isinstance(value, float) else "[]int32")
    return ";".join(operands) or NONE


def _linear(use: Use) -> str:
    """M, N, K: outputs, rows, inputs; in the backward pass the M, N, K of its two products, first for the
    data, then for the weight."""
    x, w = use.tensors[:2]
    m, k = w.shape
    rows: Dim | str = x.shape[0] if len(x.shape) == 2 else field(x.shape[:-1])
    if not use.product:
        return f"M={m},N={rows},{_type(x)}"
    if not use.backward:
        return f"M={m},N={rows},K={k},{_type(x)}"
    if use.sub == 0:
        return f"M={k},N={rows},K={m},{_type(x)}"
    if use.sub == 1:
        return f"M={k},N={m},K={rows},{_type(x)}"
    return f"X={field(x.shape)},W={field(w.shape)},{_type(x)}"


def _product(skip: int) -> Callable[[Use], str]:
    """Return the writer of a product that skips ``skip`` arguments: ``addmm`` takes the matrix to add first.
    PyProf's M and N are columns and rows."""

    def write(use: Use) -> str:
        a, b = use.tensors[skip : skip + 2]
        (m, k), (_, n) = a.shape, b.shape
        return f"M={n},N={m},K={k},{_type(a)}"

    return write


def _batch(skip: int) -> Callable[[Use], str]:
    def write(use: Use) -> str:
        a, b = use.tensors[skip : skip + 2]
        (batch, m, k), (_, _, n) = a.shape, b.shape
        return f"B={batch},M={n},N={m},K={k},{_type(a)}"

    return write


def _matmul(use: Use) -> str:
    a, b = use.tensors[:2]
    return f"A={field(a.shape)},B={field(b.shape)},{_type(a)}"


def _embedding(use: Use) -> str:
    """PyTorch's functional takes the indices first, its op takes the table first."""
    first, second = use.tensors[:2]
    indices, table = (first, second) if use.marker else (second, first)
    return f"I={field(indices.shape)},{_type(indices)}E={field(table.shape)},{_type(table)}"


def _conv(use: Use) -> str:
    """The sixteen sizes of a convolution in one or two dimensions."""
    x, w = use.tensors[:2]
    dims = len(x.shape) - 2
    transposed = use.call.param("transposed")
    if dims not in (1, 2) or len(w.shape) != dims + 2 or transposed is True:
        raise _Unfit
    stride, padding, dilation = (
        _each(use.value(name, position), usual, dims)
        for name, position, usual in (("stride", 3, 1), ("padding", 4, 0), ("dilation", 5, 1))
    )
    groups = use.value("groups", 6)
    n, c, *size = x.shape
    k, _, *kernel = w.shape
    out = [_out(*each) for each in zip(size, kernel, stride, padding, dilation, strict=True)]
    lead = [] if dims == 2 else [1]
    (h, width), (p, q), (r, s) = ([*lead, *each] for each in (size, out, kernel))
    (u, v), (dh, dw) = ([*lead, *each] for each in (stride, dilation))
    ph, pw = padding if dims == 2 else (0, *padding)
    named = {
        "N": n, "C": c, "H": h, "W": width, "K": k, "P": p, "Q": q, "R": r, "S": s, "ph": ph,
        "pw": pw, "U": u, "V": v, "dh": dh, "dw": dw, "g": 1 if groups is None else groups,
    }  # fmt: skip
    return "".join(f"{key}={value}," for key, value in named.items()) + _type(x)


def _each(value: ParamValue, usual: int, dims: int) -> list[int]:
    """Return a parameter per dimension, whether it was given once, per dimension, or not at all."""
    if value is None:
        return [usual] * dims
    values = value if isinstance(value, tuple) else (value,)
    ints = [value for value in values if type(value) is int]
    if len(ints) != len(values) or len(ints) not in (1, dims):
        raise _Unfit
    return ints * dims if len(ints) == 1 else ints


def _out(size: Dim, kernel: Dim, stride: int, padding: int, dilation: int) -> int:
    if not isinstance(size, int) or not isinstance(kernel, int) or stride < 1:
        raise _Unfit
    return 1 + (size + 2 * padding - (dilation * (kernel - 1) + 1)) // stride


def _join(use: Use) -> str:
    """``T=[2,3]fp32;[2,5]fp32,A=1``: the tensors and the axis."""
    tensors = use.tensors
    axis = use.call.param("dim")
    for _, value in use.call.params if axis is None else ():
        axis = value if type(value) is int else axis
    axis = 0 if axis is None else axis
    if type(axis) is not int:
        raise _Unfit
    sizes_text = ";".join(_whole(tensor) for tensor in tensors)
    return f"T={sizes_text},A={axis + len(tensors[0].shape) if axis < 0 else axis}"


def _convert(use: Use) -> str:
    return _whole(use.tensors[0])


def _copy(use: Use) -> str:
    """The copied tensor's sizes and type, and the copy's type."""
    to, source = use.tensors[:2]
    return f"T={field(source.shape)},{_type(source)}{_type(to)}"


def _index_select(use: Use) -> str:
    tensor, index = use.tensors[:2]
    axis = use.value("dim", 1)
    return f"T={field(tensor.shape)},D={axis},I={index.shape[0]},{_type(tensor)}"


def _masked_select(use: Use) -> str:
    tensor, mask = use.tensors[:2]
    return f"T={field(tensor.shape)},M={field(mask.shape)},{_type(tensor)}"


def _mse_loss(use: Use) -> str:
    reduction = use.value("reduction", 2)
    how = reduction if isinstance(reduction, str) else {0: "none", 2: "sum"}.get(
        reduction if isinstance(reduction, int) else 1, "mean"
    )  # fmt: skip
    return f"{_one(use)}red={how},"


def _adam(use: Use) -> str:
    """The sizes and type of the parameters, and the type of the gradients."""
    weight, gradient = use.tensors[0], use.tensors[4]
    return f"T={field(weight.shape)},{_type(weight)}{_type(gradient)}"


def _randperm(use: Use) -> str:
    count = use.value("n", 0)
    if type(count) is not int:
        raise _Unfit
    return f"N={count},"


#: The number of gates of a recurrent cell.
GATES: Final = {"RNNCell": 1, "LSTMCell": 4, "GRUCell": 3}


def _cell(use: Use) -> str:
    """A cell's two products in the order in which they run, then the op on their results."""
    x, h = use.tensors[:2]
    cell = use.call.name.rpartition(".")[0]
    (batch, inputs), hidden = x.shape, h.shape[1]
    if not isinstance(hidden, int):
        raise _Unfit
    gates = GATES[cell] * hidden
    if not use.backward and use.sub % 3 < 2:
        which, k = (("layer", inputs), ("recur", hidden))[use.sub % 3]
        return f"gemm={which},M={gates},N={batch},K={k},{_type(x)}"
    return f"cell={cell},X={inputs},H={hidden},B={batch},{_type(x)}"


def _words(text: str) -> list[str]:
    return text.split()


def _with_inplace(text: str) -> list[str]:
    return [name for word in text.split() for name in (word, f"{word}_")]


_OPERATORS: Final = (
    "abs neg invert add sub mul floordiv truediv mod radd rsub rmul rdiv rtruediv rfloordiv iadd isub imul"
    " itruediv pow rpow lt gt ge le eq ne and or xor lshift rshift iand ior ixor ilshift irshift"
)
_POINTWISE: Final = [
    *(f"__{name}__" for name in _OPERATORS.split()),
    *_with_inplace(
        "abs neg reciprocal exp expm1 log log10 log1p log2 rsqrt sqrt ceil clamp floor frac round sign"
        " trunc acos asin atan atan2 cos cosh sin sinh tan sigmoid tanh erf erfc erfinv add div mul"
        " remainder sub fmod pow lt gt ge le eq ne addcdiv addcmul lerp"
    ),
    *_words("digamma mvlgamma"),
]
_ONE_TENSOR: Final = _words(
    "sum mean norm dropout _fused_dropout native_dropout softmax log_softmax _softmax _log_softmax reshape"
    " gather masked_scatter_ nonzero clone contiguous any batch_norm native_batch_norm cudnn_batch_norm"
    " celu elu elu_ hardshrink hardtanh hardtanh_ leaky_relu leaky_relu_ logsigmoid prelu relu relu_ relu6"
    " rrelu rrelu_ selu softplus softshrink softsign tanhshrink threshold threshold_"
)
_FAMILIES: Final[Mapping[str, Callable[[Use], str]]] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(_ONE_TENSOR, _one),
    **dict.fromkeys(_words("byte char double float half int long short to _to_copy"), _convert),
    "linear": _linear,
    **dict.fromkeys(_words("conv1d conv2d convolution _convolution cudnn_convolution"), _conv),
    **dict.fromkeys(_words("matmul __matmul__"), _matmul),
    "mm": _product(0),
    **dict.fromkeys(_words("addmm addmm_"), _product(1)),
    "bmm": _batch(0),
    **dict.fromkeys(_words("baddbmm baddbmm_"), _batch(1)),
    "embedding": _embedding,
    **dict.fromkeys(_words("cat stack"), _join),
    "copy_": _copy,
    "index_select": _index_select,
    "masked_select": _masked_select,
    "mse_loss": _mse_loss,
    "adam": _adam,
    "randperm": _randperm,
}
