"""Makes, from an op's arguments, the hashable signature of a call and the ``OpCall`` itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import torch
from torch.nn import Parameter

from opscope.core.rangetext import clean_value
from opscope.core.schema import DTYPE_NAMES, Arg, Dim, Frame, OpCall, ParamValue, SameAs, TensorSpec

#: The short names of the dtypes that this torch has. Any other dtype (quantised, bits) keeps PyTorch's name,
#: so that no reader mistakes it for another number format. Two 4-bit floats are a byte: sizes count bytes.
DTYPES: Final[dict[Any, str]] = {
    getattr(torch, name): short
    for name, short in {**DTYPE_NAMES, "complex32": "c32", "float4_e2m1fn_x2": "u8"}.items()
    if hasattr(torch, name)
}


def dtype_name(dtype: Any) -> str:
    """Return ``f32`` for ``torch.float32``, ``qint8`` for ``torch.qint8``."""
    name = DTYPES.get(dtype)
    return str(dtype).removeprefix("torch.") if name is None else name


Tensor = torch.Tensor
_STRIDED: Final = torch.strided

#: Types of values that enter a signature unchanged, beside their type (1, 1.0 and True are equal keys).
_PLAIN: Final = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout}
    | {torch.memory_format}
)
#: Types of values whose identity does not matter: no shape depends on them.
_OPAQUE: Final = frozenset({torch.Generator, torch.ScriptObject})
#: Types whose values the signature of a call omits where its numbers change all the time.
_NUMBERS: Final = frozenset({int, float, complex})
_SCALARS: Final = _NUMBERS | {bool}
#: TorchScript's names of a process group, and of a collective's reduction of the ranks' values.
_GROUP: Final = "__torch__.torch.classes.c10d.ProcessGroup"
_REDUCTION: Final = "__torch__.torch.classes.c10d.ReduceOp"
#: The reductions by their number (c10d's ReduceOp), under the names of functional collectives.
_REDUCTIONS: Final = (
    *("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"),
)
#: The parameter of an op on a tensor subclass. The ops that do the work run inside it, with shapes
#: of their own.
SUBCLASS: Final = "subclass"
_PYTHON: Final = torch._C.DispatchKey.Python
#: What the text has in place of a number that changes all the time.
VARIES: Final = "varies"


class Unsigned(Exception):
    """The value has no signature: a tensor subclass, a nested tensor, a symbolic size."""


def sign(key: list[Any], values: Iterable[Any], numbers: bool = True) -> None:
    """Append to ``key`` everything that the text of a call depends on.

    Without ``numbers``, omit the values (not the types) of int, float and complex arguments, and the
    number of elements that a sparse tensor stores. Raises ``Unsigned`` where a value has no cheap and
    certain signature.
    """
    add = key.append
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            if value.layout is not _STRIDED:
                # Some of these return strides nevertheless, which mean nothing.
                add((value.shape, value.dtype, value.layout, value.device))
                if numbers:
                    add(_store(value))
                continue
            try:
                # The device of each tensor: a copy between devices differs from one within a device.
                add((value.shape, value.dtype, value.stride(), value.device))
            except (RuntimeError, NotImplementedError):
                raise Unsigned from None  # a nested tensor
        elif kind in _PLAIN:
            add(kind)
            if numbers or kind not in _NUMBERS:
                add(value)
        elif kind is list or kind is tuple or kind is torch.Size:
            add(len(value))
            sign(key, value, numbers)
        elif kind in _OPAQUE:
            add(kind)
            if kind is torch.ScriptObject:
                add(_object_name(value))
        else:
            raise Unsigned


def holds_data(values: Sequence[Any]) -> bool:
    """Whether a sparse tensor is among ``values``: then the sizes of results depend on data, for example
    of ``values()``."""
    return any(
        isinstance(value, Tensor) and value.layout not in (_STRIDED, torch._mkldnn)
        for value in _leaves(values)
    )


def _store(tensor: Any) -> int | None:
    """The number of elements that a sparse tensor stores. Does not wait for the device."""
    if tensor.layout is torch.sparse_coo:
        return int(tensor._values().numel())
    return int(tensor.values().numel()) if tensor.layout in _COMPRESSED else None


def tensor_spec(tensor: Any, count: bool = False) -> TensorSpec:
    """The tensor's dtype and sizes, with strides where it is not contiguous, or a layout without strides.

    With ``count``, also the number of elements that a sparse tensor stores.
    """
    if type(tensor) is Tensor or type(tensor) is Parameter:
        spec = _tensor_spec(tensor)
        return replace(spec, stored=_store(tensor)) if count and spec.is_sparse else spec
    try:
        return _tensor_spec(tensor)
    except Exception:  # noqa: BLE001 - a subclass runs its own code, which may raise anything
        return TensorSpec("?", ("?",))


def _tensor_spec(tensor: Any) -> TensorSpec:
    dtype = dtype_name(tensor.dtype)
    if tensor.is_nested:
        layout = _STRIDELESS.get(tensor.layout, "nested")
        return TensorSpec(dtype, _dims(_nested_sizes(tensor)), layout=layout)
    shape = _dims(tensor.shape)
    if tensor.layout is not _STRIDED:  # a sparse tensor has sizes but no strides
        return TensorSpec(dtype, shape, layout=_STRIDELESS.get(tensor.layout, "other"))
    strides = _dims(tensor.stride())
    if _row_major(shape, strides):
        return TensorSpec(dtype, shape)
    return TensorSpec(dtype, shape, None, strides)


def _nested_sizes(tensor: Any) -> tuple[Any, ...]:
    """The sizes of a nested tensor; ``?`` for a size that differs from row to row."""
    if tensor.layout is torch.jagged:
        return tuple(tensor.shape)
    sizes: list[Any] = []
    for dim in range(tensor.dim()):
        try:
            sizes.append(tensor.size(dim))
        except RuntimeError:  # an irregular dimension of the strided layout has no single size
            sizes.append("?")
    return tuple(sizes)


def _dims(sizes: Sequence[Any]) -> tuple[Dim, ...]:
    """The sizes; a symbolic one as its expression, because reading its value would add a guard to a
    compilation."""
    return tuple(size if type(size) is int else str(size) for size in sizes)


def _row_major(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if not isinstance(size, int):
            return True  # symbolic: the strides would be expressions without use for a reader
        if size == 0:
            return True
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


#: Python's names of C++ enumeration values, by their number (c10's ScalarType, Layout and MemoryFormat,
#: whose numbers never change).
_DTYPES: Final = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32"),
    *("complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2"),
    *("quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2"),
    *("float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64"),
    *(f"{sign}int{bits}" for sign in ("u", "") for bits in range(1, 8)),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
)
_LAYOUTS: Final = (
    *("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc"),
    "jagged",
)
#: Layouts without strides → their names in the range text; and the layouts among them that compress an index.
_STRIDELESS: Final = {
    getattr(torch, name): name.removeprefix("sparse_").removeprefix("_")
    for name in _LAYOUTS[1:]
    if hasattr(torch, name)
}
_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_FORMATS: Final = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_ENUMS: Final = {"ScalarType": _DTYPES, "Layout": _LAYOUTS, "MemoryFormat": _FORMATS}

#: An argument of a schema: its name, whether it is a tensor or a list of tensors, its default, and, for an
#: enumeration, the names of its values.
SchemaArg: TypeAlias = "tuple[str, bool, Any, tuple[str, ...] | None]"


def schema_arguments(func: Any) -> tuple[SchemaArg, ...] | None:
    """Return a ``SchemaArg`` for each argument; None where ``func`` has no schema."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    return tuple(
        (
            arg.name,
            "Tensor" in str(arg.type),
            arg.default_value if arg.has_default_value() else None,
            _ENUMS.get(str(arg.real_type).removeprefix("Optional[").removesuffix("]")),
        )
        for arg in schema.arguments
    )


def tensor_arguments(
    arguments: tuple[SchemaArg, ...] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Return the values of the tensor arguments in the schema's order; None for absent ones."""
    if arguments is None:  # a higher-order op: the functions that it calls are not inputs
        return [value for value in args if isinstance(value, (Tensor, list, tuple))]
    return [
        args[position] if position < len(args) else kwargs.get(key, default)
        for position, (key, is_tensor, default, _) in enumerate(arguments)
        if is_tensor
    ]


def describe(
    name: str,
    arguments: tuple[SchemaArg, ...] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    frames: tuple[Frame, ...],
    varies: bool = False,
) -> OpCall:
    """Return the call as it begins: without outputs and, for a factory, perhaps without a device."""
    inputs = tuple(_arg(value, not varies) for value in tensor_arguments(arguments, args, kwargs))
    params: list[tuple[str, ParamValue]] = []
    for position, (key, is_tensor, default, names) in enumerate(arguments or ()):
        value = args[position] if position < len(args) else kwargs.get(key, default)
        if names is not None and type(value) is int:
            value = _enumerate(value, names)
        # A number in the place of a tensor (``x * 2``) is a parameter, not an input.
        if value is not None and (not is_tensor or type(value) in _SCALARS):
            params.append((key, _param(value, varies)))
    values = (*args, *kwargs.values())
    if any(map(takes_ops, _leaves(values))):
        params.append((SUBCLASS, True))
    device = device_of(values)
    if device is None and kwargs.get("device") is not None:
        device = str(kwargs["device"])
    return OpCall(name, inputs, None, tuple(params), device, frames)


def with_result(
    call: OpCall,
    arguments: tuple[SchemaArg, ...] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
) -> OpCall:
    """Return the call with its outputs: tensors, or back references where an output is an input.

    A scalar result is not an output.
    """
    leaves = _leaves(tensor_arguments(arguments, args, kwargs))
    if isinstance(result, tuple):
        outputs = tuple(_output(item, leaves) for item in result)
    else:
        outputs = (_output(result, leaves),) if isinstance(result, (Tensor, list)) else ()
    return replace(call, outputs=outputs, device=call.device or device_of((result,)))


def device_of(values: Sequence[Any]) -> str | None:
    """The op's device: that of the first tensor not on the CPU, else ``cpu``; None without tensors."""
    first: str | None = None
    for value in _leaves(values):
        if isinstance(value, Tensor):
            device = str(value.device)
            if device != "cpu":
                return device
            first = device
    return first


def takes_ops(value: Any) -> bool:
    """Whether a value is a tensor of a class with a dispatch of its own, such as a DTensor."""
    kind = type(value)
    if kind is Tensor or kind is Parameter or not isinstance(value, Tensor):
        return False
    return bool(torch._C._dispatch_keys(value).has(_PYTHON))


def _leaves(values: Sequence[Any]) -> list[Any]:
    """The values with lists flattened, in the order that ``schema.SameAs`` counts."""
    leaves: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            leaves.extend(_leaves(value))
        else:
            leaves.append(value)
    return leaves


def _arg(value: Any, count: bool) -> Arg:
    if isinstance(value, Tensor):
        return tensor_spec(value, count)
    if isinstance(value, (list, tuple)):
        return tuple(_arg(item, count) for item in value)
    return None


def _output(value: Any, inputs: list[Any]) -> Arg:
    if isinstance(value, (list, tuple)):
        return tuple(_output(item, inputs) for item in value)
    if not isinstance(value, Tensor):
        return None  # a gradient that the caller did not request, or a scalar
    for index, leaf in enumerate(inputs):
        if leaf is value:
            return SameAs(index)
    return tensor_spec(value)


def _param(value: Any, varies: bool) -> ParamValue:
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    if varies and _has_number(value):
        return VARIES
    if isinstance(value, (list, tuple)):
        return clean_value(tuple(_param(item, False) for item in value))
    if isinstance(value, torch.Generator):
        return "generator"
    if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
        return "object"  # str() would list its bytes one by one
    if isinstance(value, torch.ScriptObject):
        # for another object str() has its address, which would make every text distinct
        return _object_name(value) or "object"
    return clean_value(value)


def _object_name(value: torch.ScriptObject) -> str | None:
    """The name of a process group of PyTorch's own class, or the kind of a reduction; else None."""
    named = value._type().qualified_name()
    if named == _REDUCTION:
        # PyTorch 2.6 does not expose it to Python
        kind = value.op() if value._has_method("op") else -1
        return _REDUCTIONS[kind] if 0 <= kind < len(_REDUCTIONS) else None
    if named != _GROUP:
        return None
    group = torch.distributed.ProcessGroup.unbox(value)
    return str(group.group_name) if type(group) is torch.distributed.ProcessGroup else None


def _enumerate(value: int, names: tuple[str, ...]) -> Any:
    name = names[value] if value < len(names) else "?"
    return getattr(torch, name, name)


def _has_number(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_number, value))
    return type(value) in _NUMBERS
