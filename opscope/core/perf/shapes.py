"""Read a call for the cost models: its tensors, sizes and parameters, and the bytes that it touches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from opscope.core.schema import (
    COMPLEX,
    DTYPE_BITS,
    INTEGERS,
    Arg,
    Dim,
    OpCall,
    ParamValue,
    SameAs,
    TensorSpec,
    leaves,
)

from .registry import CannotKnow, Cost, in_place, is_dispatched

#: Parameters of calls for which the compiler wrote FLOPs and bytes (read and written) into the trace.
WRITTEN: Final = ("written_flops", "written_bytes")
#: Sizes come from an untrusted trace: a product above this limit is rejected, not reported.
LARGEST: Final = 1 << 62

# The most frequent reasons why a cost is not known, as reports show them.
NO_SHAPES: Final = "the trace has no shapes for this call"
NO_OUTPUTS: Final = "the trace has no outputs"
NO_SIZE: Final = "the trace does not record the size of the result"


@dataclass(frozen=True, slots=True)
class Span:
    """A number of elements of one dtype that a model reads or writes: a part of a tensor."""

    dtype: str
    numel: int


Part = TensorSpec | Span | None


def is_scalar_slot(leaf: TensorSpec) -> bool:
    """Whether this is the empty shape that some tracers write instead of a number or a list."""
    return leaf.dtype == "?" and leaf.shape == ()


def tensors(call: OpCall) -> list[TensorSpec]:
    """Return the input tensors, with lists flattened, without absent tensors and scalar slots."""
    return [t for t in call.input_leaves() if t is not None and not is_scalar_slot(t)]


def distinct_tensors(call: OpCall) -> list[TensorSpec]:
    """Return the input tensors like ``tensors``, but each tensor once: back references are left out."""
    return [
        leaf
        for leaf in leaves(call.inputs)
        if isinstance(leaf, TensorSpec) and not is_scalar_slot(leaf)
    ]


def need(call: OpCall, number: int, label: str) -> TensorSpec:
    """Return tensor ``number`` of the inputs (scalars not counted). Raises CannotKnow if it is absent."""
    operands = tensors(call)
    if number >= len(operands):
        raise CannotKnow(f"the trace has no shape for the {label}" if operands else NO_SHAPES)
    return operands[number]


#: Kineto writes an empty list of sizes for lists in older versions, and for long lists in current ones.
NO_SIZES: Final = "the trace gives neither the sizes nor the element types of a list of tensors"


def tensor_list(call: OpCall, position: int = 0) -> list[TensorSpec]:
    """Return the tensors of the list at input ``position``. Raises CannotKnow if it was not recorded."""
    arg = call.inputs[position] if position < len(call.inputs) else None
    if isinstance(arg, tuple):
        tensors_opened = [t for t in _open(call, arg) if t is not None]
        if tensors_opened:
            return tensors_opened
    raise CannotKnow("the trace has no shapes for the list of tensors")


def _open(call: OpCall, arg: tuple[Arg, ...]) -> list[TensorSpec | None]:
    flat = call.input_leaves()
    out: list[TensorSpec | None] = []
    for leaf in leaves(arg):
        if isinstance(leaf, SameAs):
            out.append(flat[leaf.index] if 0 <= leaf.index < len(flat) else None)
        else:
            out.append(leaf)
    return out


def lists(call: OpCall) -> list[list[TensorSpec]]:
    """Return the tensors of each list among the inputs."""
    return [
        [t for t in _open(call, arg) if t is not None]
        for arg in call.inputs
        if isinstance(arg, tuple)
    ]


def output(call: OpCall, number: int = 0) -> TensorSpec | None:
    """Return output ``number``, or ``None`` if it was not recorded."""
    leaves = call.output_leaves()
    return leaves[number] if leaves is not None and number < len(leaves) else None


def need_output(call: OpCall, reason: str = NO_OUTPUTS) -> TensorSpec:
    """Return output 0. Raises CannotKnow with the ``reason`` if the outputs were not recorded."""
    spec = output(call)
    if spec is None:
        raise CannotKnow(reason)
    return spec


def outputs(call: OpCall) -> list[TensorSpec] | None:
    """Return the outputs that are tensors, or ``None`` if the outputs were not recorded."""
    leaves = call.output_leaves()
    return None if leaves is None else [t for t in leaves if t is not None]


def sizes(tensor: TensorSpec) -> tuple[int, ...]:
    """Return the shape as numbers. Raises CannotKnow if a dimension is symbolic or unknown."""
    for dim in tensor.shape:
        if not isinstance(dim, int) or dim < 0:
            if (tensor.dtype, tensor.shape) == ("?", ("?",)):
                raise CannotKnow(NO_SIZES)
            raise CannotKnow(
                f"a dimension of a tensor is not known: {tensor.dtype}{list(tensor.shape)}"
            )
    return tuple(int(dim) for dim in tensor.shape)


def numel(tensor: TensorSpec | Span) -> int:
    """Return the number of elements. Raises CannotKnow if it is not known."""
    return tensor.numel if isinstance(tensor, Span) else product(sizes(tensor))


def product(dims: Iterable[int]) -> int:
    """Return the product of ``dims``. Raises CannotKnow above 2^62, more than any machine can store."""
    total = math.prod(dims)
    if total > LARGEST:
        raise CannotKnow("the sizes are too large to be real")
    return total


def touched(tensor: TensorSpec) -> int:
    """Return the number of distinct storage elements: stride 0 and overlapping windows count once."""
    shape = sizes(tensor)
    count = product(shape)
    if tensor.strides is None or count == 0:
        return count
    reach = 1
    distinct = 1
    for size, stride in zip(shape, tensor.strides, strict=False):
        if not isinstance(stride, int):
            return count
        if stride != 0:
            distinct *= size
            reach += (size - 1) * abs(stride)
    return min(distinct, reach)


def expanded(small: TensorSpec, large: TensorSpec) -> TensorSpec:
    """Return ``large`` as a view of ``small`` (same rank), with stride 0 where a size of 1 is repeated."""
    strides: list[Dim] = []
    step: Dim = 1
    for size, repeated in zip(reversed(small.shape), reversed(large.shape), strict=True):
        strides.insert(0, 0 if size == 1 and repeated != 1 else step)
        step = step * size if isinstance(step, int) and isinstance(size, int) else "?"
    return TensorSpec(large.dtype, large.shape, None, tuple(strides))


def span(tensor: TensorSpec | Span, count: int) -> Span:
    """Return a Span of ``count`` elements of the tensor's dtype."""
    return Span(tensor.dtype, count)


def _bytes(parts: Sequence[Part], count_of: Callable[[TensorSpec], int]) -> tuple[int | None, str]:
    total = 0
    for part in parts:
        if part is None:
            continue
        try:
            count = part.numel if isinstance(part, Span) else count_of(part)
        except CannotKnow as why:
            return None, str(why)
        bits = DTYPE_BITS.get(part.dtype)
        if bits is None:
            if count == 0:
                continue
            if part.dtype == "?":
                return None, "the trace gives sizes without element types"
            return None, f"the size of an element of type {part.dtype} is not known"
        total += (count * bits + 7) // 8
    return total, ""


def cost(
    reads: Sequence[Part] | None,
    writes: Sequence[Part] | None,
    *,
    matrix: int = 0,
    vector: int = 0,
    dtype: str = "?",
    vector_dtype: str | None = None,
    masked: int = 0,
    reason: str = "",
    note: str = "",
) -> Cost:
    """Build a Cost from counts (FLOP) and the parts read and written; a ``None`` part is an absent tensor.

    ``matrix`` and ``masked`` count a multiply-add as 2; of complex numbers it is 8: four multiplications and
    four additions. Results count as without repeated elements, even if they are described by a tensor with
    strides that repeat elements. If ``reads`` or ``writes`` itself is ``None``, its bytes are not known and
    ``reason`` says why. Raises CannotKnow for counts above 2^62.
    """
    if dtype in COMPLEX:
        matrix, masked = 4 * matrix, 4 * masked
    if matrix > LARGEST or vector > LARGEST:
        raise CannotKnow("the sizes are too large to be real")
    read, why_read = (None, reason) if reads is None else _bytes(reads, touched)
    written, why_written = (None, reason) if writes is None else _bytes(writes, numel)
    split: dict[str, int] = {}
    if matrix:
        split[dtype] = matrix
    if vector:
        key = vector_dtype or dtype
        split[key] = split.get(key, 0) + vector
    why = why_read if read is None else why_written if written is None else ""
    return Cost(matrix, vector, read, written, split, why, masked, note)


#: Real operations per operation on complex numbers: four products and two additions for a product, and so on.
_COMPLEX_STEPS: Final = MappingProxyType(
    {
        **dict.fromkeys(("mul", "multiply", "square", "prod", "cumprod"), 6),
        **dict.fromkeys(("div", "divide", "true_divide", "reciprocal"), 11),
        "abs": 4,  # two squares, a sum, a root
    }
)


def multiply_adds(found: Cost, dtype: str) -> int:
    """Return the ``matrix`` argument from which ``cost`` made the matrix FLOPs of ``found``."""
    return found.matrix_flops // (4 if dtype in COMPLEX else 1)


def real_steps(word: str, dtype: str) -> int:
    """Return the number of real operations in an elementwise operation on numbers of ``dtype``: 1 for real
    numbers; 2 for complex ones if it works on both parts, as a sum does."""
    return _COMPLEX_STEPS.get(word, 2) if dtype in COMPLEX else 1


# ------------------------------------------------------------------------------- parameters


def knows_params(call: OpCall) -> bool:
    """Whether the trace records the call's parameters, so that an absent one has its default value.

    Old traces record only shapes for ATen ops; API calls (``torch.nn.functional.conv2d``) are recorded
    with the arguments that the user passed.
    """
    return bool(call.params) or not is_dispatched(call.name)


def int_param(call: OpCall, key: str, default: int | None = None) -> int:
    """Return an integer parameter. Raises CannotKnow if it is absent and there is no default."""
    value = call.param(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if default is None:
            raise CannotKnow(f"the trace does not record {key}")
        return default
    return int(value)


def ints_param(call: OpCall, key: str) -> tuple[int, ...] | None:
    """Return an integer or a list of integers as a tuple; ``None`` if the parameter is absent."""
    return as_ints(call.param(key))


def as_ints(value: ParamValue) -> tuple[int, ...] | None:
    """Return an integer or a list of integers as a tuple, and ``None`` for anything else."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return None
    if isinstance(value, (int, float)):
        return (int(value),)
    ints = [int(v) for v in value if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return tuple(ints) if len(ints) == len(value) else None


#: The dtypes in the order of c10::ScalarType: traces write a dtype argument as its number.
_SCALAR_TYPES: Final = (
    "u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "c32", "c64", "c128", "bool", "i8", "u8",
    "i32", "bf16", "u4", "?", "?", "?", "?", "?", "?", "f8e5m2", "f8e4m3fn", "f8e5m2fnuz", "f8e4m3fnuz",
    "u16", "u32", "u64",
)  # fmt: skip


def dtype_param(call: OpCall, default: str, key: str = "dtype") -> str:
    """Return the dtype that a parameter gives, ``default`` if it is absent, ``?`` if it is not a dtype."""
    value = call.param(key)
    if value is None:
        return default
    if isinstance(value, str):
        return value if value in DTYPE_BITS else "?"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_SCALAR_TYPES):
        return _SCALAR_TYPES[value]
    return "?"


def spread(values: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...]:
    """Return one value per dimension: a single value is repeated, no value means the default.

    Raises CannotKnow if the number of values differs.
    """
    if not values:
        return (default,) * rank
    if len(values) == 1:
        return values * rank
    if len(values) != rank:
        raise CannotKnow(f"a parameter has {len(values)} values for {rank} dimensions")
    return values


def axes(values: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Return the named dimensions, each once, negative ones counted from the end; all if none is named.

    Raises CannotKnow for a dimension that the tensor does not have.
    """
    if not values:
        return tuple(range(rank))
    out = []
    for axis in values:
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise CannotKnow(f"dimension {axis} is out of range for a tensor of {rank} dimensions")
        out.append(axis % rank if rank else 0)
    return tuple(dict.fromkeys(out))


# --------------------------------------------------------------- broadcasting and promotion


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which all ``shapes`` broadcast. Raises CannotKnow if they do not broadcast."""
    rank = max((len(s) for s in shapes), default=0)
    out = []
    for axis in range(-rank, 0):
        dims = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(dims) > 1:
            raise CannotKnow(f"the shapes do not broadcast: {[list(s) for s in shapes]}")
        out.append(dims.pop() if dims else 1)
    return tuple(out)


_NARROW: Final = ("f16", "bf16")


def _rank_of(dtype: str) -> int:
    return 0 if dtype == "bool" else 1 if dtype in INTEGERS else 3 if dtype in COMPLEX else 2


def promote(operands: Sequence[TensorSpec]) -> str:
    """Return the result dtype by PyTorch's promotion rule: category first, then sized tensors before 0-d.

    https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """
    if not operands or any(t.dtype == "?" for t in operands):
        return "?"
    sized = [t.dtype for t in operands if t.shape]
    scalars = [t.dtype for t in operands if not t.shape]
    best = _widest(sized)
    other = _widest(scalars)
    if best is None:
        return other or "?"
    if other is not None and _rank_of(other) > _rank_of(best):
        # a 0-d float beside integers gives the default float type; an f64 scalar is a Python float
        return "f32" if other == "f64" else other
    return best


def _widest(dtypes: Sequence[str]) -> str | None:
    best: str | None = None
    for dtype in dtypes:
        if best is None or _rank_of(dtype) > _rank_of(best):
            best = dtype
        elif _rank_of(dtype) == _rank_of(best) and dtype != best:
            if {dtype, best} == set(_NARROW):
                best = "f32"
            elif (DTYPE_BITS.get(dtype, 0), dtype) > (DTYPE_BITS.get(best, 0), best):
                best = dtype
    return best


def result(call: OpCall, shape: Sequence[int], dtype: str) -> TensorSpec:
    """Return output 0: as recorded, else the first input if in place, else ``shape`` and ``dtype``."""
    recorded = output(call)
    if recorded is not None:
        return recorded
    if in_place(call.name):
        operands = tensors(call)
        if operands:
            return operands[0]
    return TensorSpec(dtype, tuple(shape))


def floating(dtype: str) -> str:
    """Return the dtype of the result of a floating-point function: integers and bool become f32."""
    return "f32" if dtype != "?" and _rank_of(dtype) < 2 else dtype
