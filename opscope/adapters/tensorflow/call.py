"""Make OpCalls of TensorFlow's ops, eager or in a graph: dtypes, shapes, attributes."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

from tensorflow.python.framework import dtypes, op_def_registry, tensor_shape
from tensorflow.python.ops import resource_variable_ops

from opscope.core.rangetext import clean_value
from opscope.core.schema import DTYPE_NAMES, Arg, Dim, Frame, OpCall, ParamValue, TensorSpec

_NAMES: Final = {
    **DTYPE_NAMES,
    "float4_e2m1fn": "f4e2m1",
    "int4": "i4",
    "uint4": "u4",
    **{f"q{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32)},
}
#: Attributes to leave out: they repeat the inputs and outputs, or only matter to TensorFlow itself.
_OMITTED_NAMES: Final = """
    T Tidx Tshape Tparams Tindices Tmultiples Tperm Tpaddings Tblock_shape Tcrops Index N U DstT
    SrcT dtype out_type Truncate config config_proto executor_type output_types output_shapes Tin
    Tout shape shared_name container debug_name allowed_devices validate_shape Tdim Tlen Taxis
    use_cudnn_on_gpu explicit_paddings begin_mask end_mask ellipsis_mask new_axis_mask
    shrink_axis_mask
"""
_OMITTED: Final = frozenset(_OMITTED_NAMES.split())
#: Elements of a list attribute to include.
_MAX_LIST: Final = 64


def dtype_name(dtype: Any) -> str:
    """Return ``f32`` for ``tf.float32``, TensorFlow's own name (``resource``, ``string``) for the rest."""
    name: str = dtypes.as_dtype(dtype).base_dtype.name
    return _NAMES.get(name, name)


def dims(shape: Any) -> tuple[Dim, ...]:
    """Return the sizes of a TensorShape or a tuple; ``?`` for an unknown size, or for an unknown rank."""
    if isinstance(shape, tensor_shape.TensorShape):
        if shape.rank is None:
            return ("?",)
        shape = shape.as_list()
    if shape is None:
        return ("?",)
    return tuple("?" if size is None or size < 0 else int(size) for size in shape)


def tensor_spec(tensor: Any) -> TensorSpec:
    """Return the spec of a tensor. A resource that is a variable has the spec of its value."""
    dtype = tensor.dtype
    if dtype == dtypes.resource:
        data = resource_variable_ops.get_eager_safe_handle_data(tensor)
        if data is not None and data.is_set and len(data.shape_and_type) == 1:
            handle = data.shape_and_type[0]
            return TensorSpec(
                dtype_name(handle.dtype), dims(tensor_shape.TensorShape(handle.shape))
            )
        return TensorSpec("resource", ())
    return TensorSpec(dtype_name(dtype), dims(tensor.shape))


def arguments(tensors: Iterable[Any]) -> tuple[Arg, ...]:
    """Return the specs of an op's flat inputs."""
    return tuple(tensor_spec(tensor) for tensor in tensors)


def input_count(op_type: str) -> int | None:
    """Return how many inputs (a list counts as one) an op takes, ``None`` if the op is not registered."""
    definition = op_def_registry.get(op_type)
    return None if definition is None else len(definition.input_arg)


def parameters(
    op_type: str, attributes: Iterable[tuple[str, Any]]
) -> tuple[tuple[str, ParamValue], ...]:
    """Return an op's attributes as parameters, in the order of the op's definition.

    A node's attributes have no order, and generated code passes them in an order of its own.
    """
    names = _attributes(op_type)
    ordered = sorted(
        attributes, key=lambda attribute: (names.get(attribute[0], len(names)), attribute[0])
    )
    values = (parameter(name, value) for name, value in ordered)
    return tuple(value for value in values if value is not None)


@functools.lru_cache(maxsize=4096)
def _attributes(op_type: str) -> dict[str, int]:
    """Return attribute → place in the op's definition; empty if the op is not registered."""
    definition = op_def_registry.get(op_type)
    attributes = () if definition is None else definition.attr
    return {attribute.name: index for index, attribute in enumerate(attributes)}


def parameter(name: str, value: Any) -> tuple[str, ParamValue] | None:
    """Return an attribute as a parameter, ``None`` if it is empty, left out or of an unsupported type."""
    if name.startswith("_") or name in _OMITTED:
        return None
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        if any(not isinstance(item, (bool, int, float, str, bytes)) for item in value):
            return None
        value = [
            item.decode("utf-8", "replace") if isinstance(item, bytes) else item
            for item in value[:_MAX_LIST]
        ]
    elif isinstance(value, dtypes.DType):
        value = dtype_name(value)
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        return None
    if value is None or value in ("", []):
        return None
    return name, clean_value(value)


def node_call(op: Any, frames: tuple[Frame, ...]) -> OpCall:
    """Return the call of a graph's node, without data that depends on the rest of the graph."""
    attributes = ((name, _attribute(value)) for name, value in op.node_def.attr.items())
    return OpCall(
        op.type,
        arguments(op.inputs),
        tuple(tensor_spec(output) for output in op.outputs),
        parameters(op.type, attributes),
        device_name(op.device),
        frames,
    )


def _attribute(value: Any) -> Any:
    """Return the value of an AttrValue that is a number, a text or a list of these, else None."""
    kind = value.WhichOneof("value")
    if kind in ("s", "i", "f", "b"):
        return getattr(value, kind)
    if kind == "list":
        for field in ("i", "f", "b", "s"):
            items = getattr(value.list, field)
            if items:
                return list(items)
    return None


def device_name(name: str | None) -> str | None:
    """Return ``cpu:1`` for ``/job:localhost/replica:0/task:0/device:CPU:1``; the first CPU is ``cpu``."""
    kind, _, number = (name or "").rpartition("/device:")[2].partition(":")
    if not kind or kind == "*":
        return None
    if kind == "CPU" and number in ("0", "*", ""):
        return "cpu"
    return f"{_KINDS.get(kind, kind.lower())}:{number if number.isdecimal() else 0}"


_KINDS: Final = {"GPU": "cuda"}
