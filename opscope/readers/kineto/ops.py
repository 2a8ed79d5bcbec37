"""Turn an op as Kineto records it (a name, and arguments by position) into opscope's range text."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from opscope.core.code_files import kept_frames
from opscope.core.dialects.aten_schema import Argument, arguments
from opscope.core.dialects.library_schema import leading_arguments
from opscope.core.rangetext import RangeTextError, clean_value, format_call
from opscope.core.schema import Arg, Frame, OpCall, ParamValue, TensorSpec

#: dtypes by the C++ name of an element type, and by the ScalarType name that collectives use.
DTYPES: Final = {
    "double": "f64", "float": "f32", "c10::Half": "f16", "c10::BFloat16": "bf16",
    "half": "f16", "bfloat16": "bf16",
    "long": "i64", "long int": "i64", "long long": "i64", "int64_t": "i64",
    "int": "i32", "short": "i16", "short int": "i16", "signed char": "i8", "char": "i8",
    "unsigned char": "u8", "unsigned short": "u16", "short unsigned int": "u16",
    "unsigned short int": "u16", "unsigned int": "u32", "unsigned long": "u64",
    "long unsigned int": "u64", "unsigned long long": "u64", "bool": "bool",
    "c10::complex<c10::Half>": "c32", "c10::complex<float>": "c64", "c10::complex<double>": "c128",
    "c10::Float8_e4m3fn": "f8e4m3fn", "c10::Float8_e5m2": "f8e5m2",
    "c10::Float8_e4m3fnuz": "f8e4m3fnuz", "c10::Float8_e5m2fnuz": "f8e5m2fnuz",
    "c10::Float8_e8m0fnu": "f8e8m0fnu",
    "c10::Float4_e2m1fn_x2": "u8",  # two elements a byte; sizes count bytes
    "Double": "f64", "Float": "f32", "Half": "f16", "BFloat16": "bf16", "Long": "i64",
    "Int": "i32", "Short": "i16", "Char": "i8", "Byte": "u8", "Bool": "bool",
    "ComplexFloat": "c64", "ComplexDouble": "c128", "Float8_e4m3fn": "f8e4m3fn",
    "Float8_e5m2": "f8e5m2",
}  # fmt: skip
#: Types of arguments that are not tensors. The capitalised ones are how Kineto in 2021 named Python
#: scalars, so an op's types are looked up here before ``DTYPES``.
_SCALARS: Final = frozenset(
    {"Scalar", "ScalarList", "GenericList", "Int", "Bool", "Double", "String", "None", "Device",
     "Generator", "Stream", "Layout", "ScalarType", "MemoryFormat", "Object", "Enum"}
)  # fmt: skip
_LISTS: Final = frozenset({"TensorList", "OptionalTensorList"})
#: The name of the argument that receives the result.
_OUT: Final = Argument("out", "tensor")
#: A tensor of unknown shape: not even the number of dimensions is known.
_UNKNOWN: Final = TensorSpec("?", ("?",))

#: dtypes by PyTorch's ScalarType code, which represents a dtype among the concrete inputs.
_SCALAR_TYPES: Final = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 8: "c32",
    9: "c64", 10: "c128", 11: "bool", 15: "bf16", 23: "f8e5m2", 24: "f8e4m3fn", 25: "f8e5m2fnuz",
    26: "f8e4m3fnuz", 27: "u16", 28: "u32", 29: "u64", 44: "f8e8m0fnu", 45: "u8",
}  # fmt: skip

_INT = re.compile(r"-?[0-9]{1,19}\Z")
_FRAME = re.compile(r"(.+)\(([0-9]{1,9})\): ")


def op_text(
    name: str, dims: bytes, types: bytes, strides: bytes, values: bytes, stack: bytes
) -> str:
    """Return the range text of one op. Each argument except ``name`` is Kineto's raw JSON, or b"".

    If no dimensions were recorded or the arguments cannot be read, the text has none: ``aten::add()``.
    """
    frames = _frames(_json(stack)) if stack else ()
    sizes = _json(dims) if dims else None
    if not isinstance(sizes, list):
        return format_call(OpCall(name, frames=frames))
    count = len(sizes)
    call = _call(
        name,
        sizes,
        _list(types, count),
        _list(strides, count),
        _list(values, count),
        frames,
    )
    try:
        return format_call(call)
    except RangeTextError:  # a type that is not one word
        return format_call(OpCall(name, frames=frames))


#: Reductions with an overload that takes no dimension and reduces the whole tensor. Without a parameter,
#: their calls would look as if the trace recorded none.
_OF_ALL: Final = frozenset(
    f"aten::{name}"
    for name in ("max", "min", "prod", "median", "nanmedian", "mean", "sum", "any", "all")
)


def _call(
    name: str,
    sizes: list[Any],
    types: list[Any],
    strides: list[Any],
    values: list[Any],
    frames: tuple[Frame, ...],
) -> OpCall:
    are_tensors = tuple(map(_surely_tensor, types, sizes))
    schema: tuple[Argument | None, ...] | None
    if name.startswith("aten::"):
        schema = arguments(name, len(sizes), are_tensors, tuple(map(_not_list, values)))
    else:
        schema = leading_arguments(name, are_tensors)
    inputs: list[Arg] = []
    params: list[tuple[str, ParamValue]] = []
    out: Arg = None
    listed = any(map(_nest, sizes))  # whether this PyTorch version records the sizes of lists
    named = not _LISTS.isdisjoint(kind for kind in types if isinstance(kind, str))
    for index, size in enumerate(sizes):
        argument = schema[index] if schema else None
        label, elements = _label(types[index])
        if named and label not in _LISTS and argument is not None and argument.kind == "tensors":
            argument = None  # another overload: numbers or a tensor
        is_tensor = _is_tensor(label, size, argument, bool(types[index] is not None))
        if is_tensor and argument == _OUT:
            out = _tensor(label, size, strides[index], argument, listed, elements)
        elif is_tensor:
            inputs.append(_tensor(label, size, strides[index], argument, listed, elements))
        elif (
            argument is not None
            and argument.kind in ("tensor", "tensors")
            and not _has_value(values[index])
            and label not in _SCALARS
        ):
            inputs.append(None)  # an optional tensor that was not passed
        elif _has_value(values[index]):
            key = argument.name if argument else f"arg{index}"
            value = _value(values[index])
            if key == "dtype" and type(value) is int:
                value = _SCALAR_TYPES.get(value, value)
            params.append((key, value))
        elif argument is not None and argument.name == "reduce" and not label:
            # this is a text whose value is not recorded; that it exists selects the overload
            params.append(("reduce", "?"))
    while inputs and inputs[-1] is None:
        inputs.pop()
    if (
        name in _OF_ALL
        and len(inputs) == 1
        and schema
        and not params
        and not any(one.name == "dim" for one in schema if one is not None)
    ):
        params.append(("keepdim", False))
    # an argument that was enlarged to hold the result had no elements before
    stated = isinstance(out, TensorSpec) and "?" not in out.shape and 0 not in out.shape
    return OpCall(name, tuple(inputs), (out,) if stated else None, tuple(params), None, frames)


def _label(written: Any) -> tuple[str, list[Any]]:
    """Return the type of an argument. PyTorch's execution traces also give the types of a list's elements;
    its profiler writes only ``TensorList``."""
    if isinstance(written, list) and written:
        return "TensorList", written
    return (written if isinstance(written, str) else ""), []


def _surely_tensor(label: Any, size: Any) -> bool | None:
    """Whether an argument is a tensor, from the trace alone; None if that does not decide it."""
    if not isinstance(label, str) or not label:
        return True if size else None
    return label in _LISTS or label not in _SCALARS


def _not_list(value: Any) -> bool:
    """Whether an argument is a number or a text, and so not a list of sizes."""
    return _has_value(value) and not str(value).startswith("[")


def _is_tensor(label: str, size: Any, argument: Argument | None, typed: bool) -> bool:
    if argument is not None and argument.kind == "tensors":
        return True
    if typed and label:
        return label in _LISTS or (label not in _SCALARS and not label.startswith("nullptr"))
    if typed:  # "" is neither a tensor nor a number: absent, or a string, a dtype or a device
        return bool(size)
    # Without types, a size means a tensor; without a size only the schema decides.
    return bool(size) or (argument is not None and argument.kind == "tensor")


def _nest(size: Any) -> bool:
    return isinstance(size, list) and any(isinstance(item, list) for item in size)


def _tensor(
    label: str,
    size: Any,
    strides: Any,
    argument: Argument | None,
    listed: bool,
    elements: list[Any],
) -> Arg:
    nested = _nest(size)
    if label in _LISTS or nested or (argument is not None and argument.kind == "tensors"):
        if not isinstance(size, list) or not nested:
            # an empty list, or a list whose sizes were not recorded
            return () if listed and size == [] else (_UNKNOWN,)
        apart = (
            strides
            if isinstance(strides, list) and len(strides) == len(size)
            else [None] * len(size)
        )
        kinds = elements if len(elements) == len(size) else [label] * len(size)
        dtypes = [DTYPES.get(kind, "?") if isinstance(kind, str) else "?" for kind in kinds]
        specs = map(_spec, dtypes, size, apart)
        return tuple(
            None if kind == "" and elements else spec
            for kind, spec in zip(kinds, specs, strict=True)
        )
    return _spec(DTYPES.get(label, "?"), size, strides)


def _spec(dtype: str, size: Any, strides: Any) -> TensorSpec:
    if not isinstance(size, list) or not all(type(dim) is int for dim in size):
        return TensorSpec(dtype, ("?",))
    shape = tuple(size)
    if strides == [] and shape:  # PyTorch writes no strides for a tensor without strides
        return TensorSpec(dtype, shape, layout="other")
    if (
        not isinstance(strides, list)
        or len(strides) != len(shape)
        or not all(type(step) is int for step in strides)
    ):
        return TensorSpec(dtype, shape)
    return with_layout(dtype, shape, tuple(strides))


def with_layout(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorSpec:
    """Return the spec of a strided tensor, with a layout only if it is not row-major.

    The strides of dimensions of size 1 do not matter. A dense permutation is written minor to major, any
    other layout by its strides.
    """
    matter = [dim for dim, size in enumerate(shape) if size != 1]
    if 0 in shape or _dense(shape, strides, matter[::-1]):
        return TensorSpec(dtype, shape)
    order = sorted(range(len(shape)), key=lambda dim: (strides[dim], shape[dim], -dim))
    if _dense(shape, strides, [dim for dim in order if shape[dim] != 1]):
        return TensorSpec(dtype, shape, minor_to_major=tuple(order))
    return TensorSpec(dtype, shape, strides=strides)


def _dense(shape: tuple[int, ...], strides: tuple[int, ...], minor_first: list[int]) -> bool:
    expected = 1
    for dim in minor_first:
        if strides[dim] != expected:
            return False
        expected *= shape[dim]
    return True


def _has_value(value: Any) -> bool:
    return value is not None and value != ""


def _value(value: Any) -> ParamValue:
    """Parse a concrete input, which Kineto writes as text: ``"False"``, ``"0."``, ``"[1, 1]"``."""
    if not isinstance(value, str):
        return clean_value(value)
    text = value.strip()
    if text in ("True", "False"):
        return text == "True"
    if text == "None":
        return None
    if _INT.match(text):
        return int(text)
    try:
        if text[:1] == "[" and text[-1:] == "]":
            items = text[1:-1].split(", ", 256) if len(text) > 2 else []
            return clean_value([_value(item) if "[" not in item else item for item in items])
        return float(text)
    except ValueError:
        return clean_value(text[:256])


def _frames(stack: Any) -> tuple[Frame, ...]:
    """The frames kept of a call stack, which is ``file(line): function`` joined by ``;``."""
    if not isinstance(stack, str):
        return ()
    matches = map(_FRAME.match, stack.split(";", 256))
    return kept_frames([(frame[1], int(frame[2])) for frame in matches if frame])


def _json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _list(text: bytes, length: int) -> list[Any]:
    value = _json(text) if text else None
    return value if isinstance(value, list) and len(value) == length else [None] * length
