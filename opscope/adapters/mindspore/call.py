"""Make OpCalls of MindSpore's ops: dtypes, shapes, strides, and names of the arguments."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mindspore import Parameter, Tensor, _c_expression
from mindspore.common import dtype as dtypes
from mindspore.ops.auto_generate import gen_ops_prim

from opscope.core.rangetext import clean_value
from opscope.core.schema import DTYPE_NAMES, Arg, OpCall, ParamValue, TensorSpec

_NAMES: Final = {
    **DTYPE_NAMES,
    "float8e4m3fn": "f8e4m3fn",
    "float8e5m2": "f8e5m2",
    "int4": "i4",
}
_DTYPE: Final = re.compile(r"[a-z]\w*\Z")
#: Attributes of a Primitive to leave out: they repeat the arguments, or only matter to MindSpore itself.
_OMITTED: Final = frozenset(
    {
        *("input_names", "output_names", "out_channel", "primitive_target", "visited", "groups"),
        *("IsFeatureMapOutput", "IsFeatureMapInputList", "use_locking", "dynamic_shape_depends"),
        *("side_effect_mem", "side_effect_io", "side_effect_hidden", "_op_impl_yaml_name"),
    }
)
#: Parameters passed as numbers → the kind of the number: a dtype, a layout, a way to pad.
_DTYPE_KEYS: Final = frozenset({"dtype", "dst_type", "dst_dtype", "out_dtype", "dtype_id"})
_PAD_MODES: Final = {0: "pad", 1: "same", 2: "valid", 3: "full"}
#: Types of arguments that enter the key of a call by type and value.
PLAIN: Final = frozenset({int, float, bool, str, type(None)})
#: Types whose instances are tensors, without a search in their bases.
TENSORS: Final = frozenset({Tensor, Parameter})
#: The text of a number that differs from call to call.
VARIES: Final = "varies"
#: Elements of a list parameter to include, and characters of a text.
_MAX_LIST, _MAX_TEXT = 64, 256

#: By id of a dtype's object: the object, kept alive so that the id stays valid, and its name in range texts.
_dtypes: dict[int, tuple[Any, str]] = {}


class Unsigned(Exception):
    """The arguments have no key, because they contain an object that cannot be compared."""


def dtype_name(dtype: Any) -> str:
    """Return ``f32`` for ``mindspore.float32``, MindSpore's own name in lower case for the rest."""
    entry = _dtypes.get(id(dtype))
    if entry is None:
        text = str(dtype).lower().rpartition(".")[2]
        name = _NAMES.get(text, text)
        entry = _dtypes[id(dtype)] = (dtype, name if _DTYPE.match(name) else "?")
    return entry[1]


def tensor_spec(tensor: Any) -> TensorSpec:
    """Return the spec of a tensor; with strides if it is not contiguous."""
    shape = tuple("?" if size is None or size < 0 else int(size) for size in tensor._shape)
    dtype = dtype_name(tensor._dtype)
    if tensor.is_contiguous():
        return TensorSpec(dtype, shape)
    return TensorSpec(dtype, shape, None, tuple(int(stride) for stride in tensor.stride()))


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a dense tensor."""
    return type(value) in TENSORS or isinstance(value, Tensor)


def sign(key: list[Any], values: Iterable[Any], numbers: bool = True) -> None:
    """Append to ``key`` everything about ``values`` on which the text of a call depends.

    Numbers enter by value if ``numbers``, else only by type.
    """
    add = key.append
    for value in values:
        kind = type(value)
        if kind in TENSORS:
            dtype = value._dtype
            if id(dtype) not in _dtypes:
                dtype_name(dtype)
            add(id(dtype))
            add(value._shape)
            if not value.is_contiguous():
                add(tuple(value.stride()))
        elif kind in PLAIN:
            add(kind)  # because 1 == True == 1.0
            if numbers or kind is str:
                add(value)
        elif kind is tuple or kind is list:
            add(len(value))
            sign(key, value, numbers)
        elif isinstance(value, Tensor):
            add(dtype_name(value._dtype))
            add(value._shape)
        elif isinstance(value, dtypes.Type):
            add(str(value))
        else:
            add(kind)


def argument(value: Any) -> Arg:
    """Return a tensor or a list of tensors as an argument; None for anything else."""
    if is_tensor(value):
        return tensor_spec(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(argument, value))
    return None


def has_tensor(value: Any) -> bool:
    """Whether ``value`` is a tensor or a list with a tensor."""
    if isinstance(value, (list, tuple)):
        return any(map(has_tensor, value))
    return is_tensor(value)


def described(
    name: str, primitive: Any, args: Sequence[Any], device: str | None, varies: bool = False
) -> OpCall:
    """Return the call of op ``name``, without outputs and source: tensors are inputs, the rest parameters.

    ``primitive`` is the Primitive that runs the op, if any; its attributes are parameters too. Numbers are
    written as they are, or with ``varies`` as a placeholder.
    """
    names = arguments(name, primitive)
    inputs: list[Arg] = []
    params: dict[str, ParamValue] = {}
    for index, value in enumerate(args):
        if has_tensor(value):
            inputs.append(argument(value))
            continue
        if index < len(names):
            _add(params, names[index], value, varies)
        elif primitive is None:  # otherwise an attribute of the Primitive has this value
            _add(params, f"arg{index}", value, varies)
    if primitive is not None:
        for key, value in attributes(primitive).items():
            if key not in params:
                _add(params, key, value, False)
    return OpCall(name, tuple(inputs), None, tuple(params.items()), device)


def attributes(primitive: Any) -> dict[str, Any]:
    """Return the attributes of a Primitive that describe its work."""
    values = {key: attr for key, attr in primitive.attrs.items() if key not in _OMITTED}
    if "group" in values:  # the constructor's name, which cost models read in all frameworks
        values["groups"] = values.pop("group")
    return values


def _add(params: dict[str, ParamValue], key: str, value: Any, varies: bool) -> None:
    parameter = _parameter(value)
    if type(parameter) is int:
        parameter = _enumerate(key, parameter)
    if parameter is None or parameter == ():
        return
    if varies and isinstance(parameter, (int, float, tuple)) and not isinstance(parameter, bool):
        parameter = VARIES
    params[key] = clean_value(parameter)


def _enumerate(key: str, value: int) -> int | str:
    """Return the name of the value that a number stands for."""
    if key in _DTYPE_KEYS:
        try:
            kind: Any = _c_expression.typing.type_id_to_type(value)
            return dtype_name(kind)
        except (TypeError, ValueError, RuntimeError):  # the number is not a dtype's
            return value
    return _enums().get(key, {}).get(value, value)


@functools.lru_cache(maxsize=1)
def _enums() -> dict[str, dict[int, str]]:
    """Return the names of numbers by parameter. Looked up at first use, so that this module loads in any
    version."""
    formats = _c_expression.FormatEnum.__members__.items()
    reductions = _c_expression.ReductionEnum.__members__.items()
    return {
        "data_format": {int(number): name for name, number in formats if int(number) >= 0},
        "reduction": {int(number): name.lower() for name, number in reductions},
        "pad_mode": _PAD_MODES,
    }


def _parameter(value: Any) -> Any:
    """Return a value that can be written in a text; None if it is empty or of a type that is not
    described."""
    if isinstance(value, str):
        return value[:_MAX_TEXT] or None
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        items = tuple(_parameter(item) for item in value[:_MAX_LIST])
        return None if any(item is None for item in items) else items
    if isinstance(value, dtypes.Type):
        return dtype_name(value)
    return None


def arguments(name: str, primitive: Any) -> tuple[str, ...]:
    """Return the names of an op's arguments in the order in which they are passed; empty if not known."""
    kind: Any = type(primitive) if primitive is not None else None
    if kind is not None and "__call__" in vars(kind):
        return _signature(kind)
    return _signature(getattr(gen_ops_prim, name, None))


@functools.lru_cache(maxsize=4096)
def _signature(kind: Any) -> tuple[str, ...]:
    """Return the arguments of a generated Primitive class: those of the call, then the constructor's."""
    if not inspect.isclass(kind):
        return ()
    try:
        called = [*inspect.signature(kind.__call__).parameters.values()][1:]
        arguments = [*inspect.signature(inspect.unwrap(kind.__init__)).parameters.values()][1:]
    except (TypeError, ValueError):  # a class that is made in C++
        return ()
    listed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(argument.kind in listed for argument in called):
        return ()
    return tuple(argument.name for argument in (*called, *arguments) if argument.kind not in listed)


def device_name(target: str, number: int) -> str:
    """Return ``cpu``, ``cuda:0`` or ``npu:0`` for MindSpore's device target and its number."""
    kind = {"CPU": "cpu", "GPU": "cuda", "Ascend": "npu"}.get(target, target.lower())
    return kind if kind == "cpu" else f"{kind}:{number}"
