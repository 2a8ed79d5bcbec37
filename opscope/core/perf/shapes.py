"""What models ask of a call: its tensors, its sizes as numbers, the bytes that it touches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

#: Sizes of a call are a stranger's data; beyond this a product is refused rather than reported.
LARGEST: Final = 1 << 62

# What most often lacks, as reports say it.
NO_SHAPES: Final = "the trace has no shapes for this call"
NO_OUTPUTS: Final = "the trace has no outputs"
NO_SIZE: Final = "the trace does not record the size of the result"


@dataclass(frozen=True, slots=True)
class Span:
    """A number of elements of a dtype that a model reads or writes, no whole tensor of the call."""

    dtype: str
    numel: int


Part = TensorSpec | Span | None


def is_scalar_slot(leaf: TensorSpec) -> bool:
    """Whether it is the empty size that some tracers write in the place of a number or a list."""
    return leaf.dtype == "?" and leaf.shape == ()


def tensors(call: OpCall) -> list[TensorSpec]:
    """The tensors of the inputs, lists opened, absent ones and the slots of scalars left out."""
    return [t for t in call.input_leaves() if t is not None and not is_scalar_slot(t)]


def distinct_tensors(call: OpCall) -> list[TensorSpec]:
    """The same without those that are another one's back reference: each tensor once."""
    return [
        leaf
        for leaf in leaves(call.inputs)
        if isinstance(leaf, TensorSpec) and not is_scalar_slot(leaf)
    ]


def need(call: OpCall, number: int, what: str) -> TensorSpec:
    """Tensor ``number`` of the inputs (scalars not counted). Raises CannotKnow where absent."""
    found = tensors(call)
    if number >= len(found):
        raise CannotKnow(f"the trace has no shape for the {what}" if found else NO_SHAPES)
    return found[number]


def tensor_list(call: OpCall, position: int = 0) -> list[TensorSpec]:
    """The tensors of the list at input ``position``. Raises CannotKnow where it was not recorded."""
    arg = call.inputs[position] if position < len(call.inputs) else None
    if isinstance(arg, tuple):
        found = [t for t in _opened(call, arg) if t is not None]
        if found:
            return found
    raise CannotKnow("the trace has no shapes for the list of tensors")


def _opened(call: OpCall, arg: tuple[Arg, ...]) -> list[TensorSpec | None]:
    flat = call.input_leaves()
    out: list[TensorSpec | None] = []
    for leaf in leaves(arg):
        if isinstance(leaf, SameAs):
            out.append(flat[leaf.index] if 0 <= leaf.index < len(flat) else None)
        else:
            out.append(leaf)
    return out


def lists(call: OpCall) -> list[list[TensorSpec]]:
    """Every list among the inputs, as its tensors."""
    return [
        [t for t in _opened(call, arg) if t is not None]
        for arg in call.inputs
        if isinstance(arg, tuple)
    ]


def output(call: OpCall, number: int = 0) -> TensorSpec | None:
    """Output ``number`` where the call has its outputs, else ``None``."""
    found = call.output_leaves()
    return found[number] if found is not None and number < len(found) else None


def need_output(call: OpCall, reason: str = NO_OUTPUTS) -> TensorSpec:
    """Output 0. Raises CannotKnow with the ``reason`` where the outputs were not recorded."""
    found = output(call)
    if found is None:
        raise CannotKnow(reason)
    return found


def outputs(call: OpCall) -> list[TensorSpec] | None:
    """The outputs that are tensors, ``None`` where they were not recorded."""
    found = call.output_leaves()
    return None if found is None else [t for t in found if t is not None]


def sizes(tensor: TensorSpec) -> tuple[int, ...]:
    """The shape as numbers. Raises CannotKnow where a dimension is symbolic or unknown."""
    for dim in tensor.shape:
        if not isinstance(dim, int) or dim < 0:
            raise CannotKnow(f"a dimension is not known: {tensor.dtype}{list(tensor.shape)}")
    return tuple(int(dim) for dim in tensor.shape)


def numel(tensor: TensorSpec | Span) -> int:
    """The number of elements. Raises CannotKnow where it is not known."""
    return tensor.numel if isinstance(tensor, Span) else product(sizes(tensor))


def product(dims: Iterable[int]) -> int:
    """The product; CannotKnow beyond 2^62, which no tensor on any machine has."""
    total = math.prod(dims)
    if total > LARGEST:
        raise CannotKnow("the sizes are too large to be true")
    return total


def touched(tensor: TensorSpec) -> int:
    """Elements of storage behind the tensor: dims of stride 0 once, overlapping windows once."""
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
    """``large`` as a view of ``small`` (same rank): stride 0 where a size of 1 is repeated."""
    strides: list[Dim] = []
    step: Dim = 1
    for size, repeated in zip(reversed(small.shape), reversed(large.shape), strict=True):
        strides.insert(0, 0 if size == 1 and repeated != 1 else step)
        step = step * size if isinstance(step, int) and isinstance(size, int) else "?"
    return TensorSpec(large.dtype, large.shape, None, tuple(strides))


def span(tensor: TensorSpec | Span, count: int) -> Span:
    """``count`` elements of the tensor's dtype."""
    return Span(tensor.dtype, count)


def _bytes(parts: Sequence[Part]) -> tuple[int | None, str]:
    total = 0
    for part in parts:
        if part is None:
            continue
        try:
            count = part.numel if isinstance(part, Span) else touched(part)
        except CannotKnow as why:
            return None, str(why)
        bits = DTYPE_BITS.get(part.dtype)
        if bits is None:
            if count == 0:
                continue
            if part.dtype == "?":
                return None, "the trace gives sizes without element types"
            return None, f"the size of a {part.dtype} is not known"
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
    """A Cost from counts (FLOP) and the parts read and written; ``None`` parts are absent tensors.

    ``reads`` or ``writes`` themselves ``None`` mean not known, and then ``reason`` says why.
    """
    if matrix > LARGEST or vector > LARGEST:
        raise CannotKnow("the sizes are too large to be true")
    read, why_read = (None, reason) if reads is None else _bytes(reads)
    written, why_written = (None, reason) if writes is None else _bytes(writes)
    split: dict[str, int] = {}
    if matrix:
        split[dtype] = matrix
    if vector:
        key = vector_dtype or dtype
        split[key] = split.get(key, 0) + vector
    why = why_read if read is None else why_written if written is None else ""
    return Cost(matrix, vector, read, written, split, why, masked, note)


# ------------------------------------------------------------------------------- parameters


def knows_params(call: OpCall) -> bool:
    """Whether absent parameters mean their defaults, or that the trace recorded none at all.

    ATen ops in old traces come with shapes alone; API calls (``torch.nn.functional.conv2d``) are
    recorded with the arguments that the user gave.
    """
    return bool(call.params) or not is_dispatched(call.name)


def int_param(call: OpCall, key: str, default: int | None = None) -> int:
    """An integer parameter. Raises CannotKnow where absent without a default."""
    value = call.param(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        if default is None:
            raise CannotKnow(f"the trace does not record {key}")
        return default
    return int(value)


def ints_param(call: OpCall, key: str) -> tuple[int, ...] | None:
    """A parameter that is an integer or a list of them; ``None`` where absent."""
    return as_ints(call.param(key))


def as_ints(value: ParamValue) -> tuple[int, ...] | None:
    """An integer or a list of integers as a tuple; anything else ``None``."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return None
    if isinstance(value, (int, float)):
        return (int(value),)
    found = [int(v) for v in value if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return tuple(found) if len(found) == len(value) else None


#: c10::ScalarType, as traces write a dtype among an op's plain arguments.
_SCALAR_TYPES: Final = (
    "u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64", "c32", "c64", "c128", "bool", "i8", "u8",
    "i32", "bf16", "u4", "?", "?", "?", "?", "?", "?", "f8e5m2", "f8e4m3fn", "f8e5m2fnuz", "f8e4m3fnuz",
    "u16", "u32", "u64",
)  # fmt: skip


def dtype_param(call: OpCall, default: str, key: str = "dtype") -> str:
    """The dtype that a parameter asks for, ``default`` where there is none, ``?`` for a strange one."""
    value = call.param(key)
    if value is None:
        return default
    if isinstance(value, str):
        return value if value in DTYPE_BITS else "?"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_SCALAR_TYPES):
        return _SCALAR_TYPES[value]
    return "?"


def spread(values: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...]:
    """One value per dimension: a single one is repeated, none is the default."""
    if not values:
        return (default,) * rank
    if len(values) == 1:
        return values * rank
    if len(values) != rank:
        raise CannotKnow(f"{len(values)} parameters for {rank} dimensions")
    return values


def axes(values: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The dimensions named, each once, negative ones from the end; all where none is named."""
    if not values:
        return tuple(range(rank))
    out = []
    for axis in values:
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise CannotKnow(f"dimension {axis} of a tensor that has {rank}")
        out.append(axis % rank if rank else 0)
    return tuple(dict.fromkeys(out))


# --------------------------------------------------------------- broadcasting and promotion


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all broadcast to. Raises CannotKnow where they do not."""
    rank = max((len(s) for s in shapes), default=0)
    out = []
    for place in range(-rank, 0):
        dims = {s[place] for s in shapes if len(s) >= -place} - {1}
        if len(dims) > 1:
            raise CannotKnow(f"shapes do not broadcast: {[list(s) for s in shapes]}")
        out.append(dims.pop() if dims else 1)
    return tuple(out)


_NARROW: Final = ("f16", "bf16")


def _rank_of(dtype: str) -> int:
    return 0 if dtype == "bool" else 1 if dtype in INTEGERS else 3 if dtype in COMPLEX else 2


def promote(operands: Sequence[TensorSpec]) -> str:
    """The result dtype by PyTorch's and NumPy's shared rule: category first, sized tensors over 0-d.

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
        # a 0-d float beside integers gives the default float; f64 numbers are Python's own
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
    """Output 0 as recorded, else one of the given shape and dtype (the first input's if in place)."""
    recorded = output(call)
    if recorded is not None:
        return recorded
    if in_place(call.name):
        found = tensors(call)
        if found:
            return found[0]
    return TensorSpec(dtype, tuple(shape))


def floating(dtype: str) -> str:
    """The dtype that a float function of it returns: integers become f32."""
    return "f32" if dtype != "?" and _rank_of(dtype) < 2 else dtype
