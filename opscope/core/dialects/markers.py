"""Read the range texts of PyProf and DLProf: Python literals with a call and its source line.

    {'mod': 'torch.nn.functional', 'op': 'conv2d', 'args': [{'name': '', 'type': 'tensor',
     'shape': (32, 3, 32, 32), 'dtype': 'float32'}, ...]}
    {'traceMarker': ['train.py:42', '.../torch/nn/modules/conv.py:446'],
     'funcStack': '/<module>/Net::_call_impl/Net::forward/Conv2d::_call_impl(2)/...'}
    layer:block1                                     a layer that the user names, in any domain

They are read as literals under limits of length and depth, and never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from opscope.core.code_files import is_library_s, library_file, select_frames
from opscope.core.dialects import Reading, user_layer
from opscope.core.literals import NotLiteral, literal
from opscope.core.rangetext import clean_value
from opscope.core.schema import DTYPE_NAMES, Arg, Frame, OpCall, ParamValue, TensorSpec

_CONV: Final = "input weight bias stride padding dilation groups"
_TRANSPOSED: Final = "input weight bias stride padding output_padding groups dilation"
_MAX_POOL: Final = "input kernel_size stride padding dilation ceil_mode return_indices"
_AVG_POOL: Final = "input kernel_size stride padding ceil_mode count_include_pad divisor_override"
_SIGNATURES: Final = {
    "conv1d conv2d conv3d": _CONV,
    "conv_transpose1d conv_transpose2d conv_transpose3d": _TRANSPOSED,
    "max_pool1d max_pool2d max_pool3d": _MAX_POOL,
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices": _MAX_POOL,
    "avg_pool1d avg_pool2d avg_pool3d": _AVG_POOL,
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": "input output_size",
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": "input output_size",
    "softmax log_softmax cumsum cumprod": "input dim",
    "sum mean": "input dim keepdim",
    "index_select gather": "input dim index",
    "topk": "input k dim",
    "dropout": "input p training",
    "einsum": "equation",
    "randperm": "n",
    "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal",
}


def _by_name() -> Iterator[tuple[str, tuple[str, ...]]]:
    for names, signature in _SIGNATURES.items():
        for name in names.split():
            yield name, tuple(signature.split())


_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(dict(_by_name()))


def argument(module: str, function: str, position: int) -> str:
    """Return the name of a positional argument, ``arg3`` if it is not known."""
    names = _ARGUMENTS.get(function, ()) if _is_torch(module) else ()
    return names[position] if position < len(names) else f"arg{position}"


def _is_torch(module: str) -> bool:
    return module in ("torch", "Tensor") or module.startswith("torch.")


_LIMIT: Final = 64 * 1024
DTYPES: Final = {
    **DTYPE_NAMES,
    "double": "f64", "float": "f32", "half": "f16", "long": "i64", "int": "i32", "short": "i16",
}  # fmt: skip
#: A module's call in funcStack; ``(2)`` means the second instance of its class.
_MODULE_CALL: Final = re.compile(r"(\w+)::(?:_call_impl|__call__)(\([0-9]{1,9}\))?\Z")


def read(domain: str, text: str) -> Reading | None:
    """Return the reading of a marker; None if the text is not one."""
    layer = user_layer(text)
    if layer is not None:
        return layer
    if not text.startswith("{") or not text.endswith("}"):
        return None
    if text.startswith('{"model_config"'):
        return Reading("user")
    value = _literal(text)
    if not isinstance(value, dict):
        return None
    if "mod" in value and "op" in value:
        return _call(value)
    if "traceMarker" in value:
        stack = value.get("funcStack")
        return Reading(
            "source",
            frames=frames_of(value["traceMarker"]),
            layer=layer_of(stack) if isinstance(stack, str) else None,
        )
    return Reading("user") if "model_config" in value else None


def call_stack(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return a marker's ``funcStack`` and the lines of its ``traceMarker``, outermost first, ``file:line``.

    None if the text is not such a marker, or has no ``funcStack``.
    """
    value = _literal(text) if text.startswith("{") and "'funcStack'" in text else None
    stack = value.get("funcStack") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(stack, str) or not stack:
        return None
    lines = value.get("traceMarker")
    return stack, tuple(map(str, lines if isinstance(lines, (list, tuple)) else ()))


def _literal(text: str) -> Any:
    """Return the text as a Python literal; None if it is too long, too deep or not a literal."""
    if len(text) > _LIMIT:
        return None
    try:
        return literal(text)
    except NotLiteral:
        return None


def _call(value: dict[Any, Any]) -> Reading | None:
    module, op = value["mod"], value["op"]
    if not isinstance(module, str) or not isinstance(op, str) or not op:
        return None
    inputs: list[Arg] = []
    params: list[tuple[str, ParamValue]] = []
    args = value.get("args")
    for position, arg in enumerate(args if isinstance(args, (list, tuple)) else ()):
        if not isinstance(arg, dict):
            continue
        name = arg.get("name")
        name = name if isinstance(name, str) else ""
        tensor = _tensors(arg)
        if tensor is not _NO_TENSOR:
            inputs.append(tensor)
        elif arg.get("type") == "NoneType" and not name and not params:
            inputs.append(None)  # among leading tensors: an absent tensor, such as a linear's bias
        else:
            params.append((name or argument(module, op, position), clean_value(arg.get("value"))))
    while inputs and inputs[-1] is None:
        inputs.pop()
    full = f"{module}.{op}" if module else op
    return Reading("op", OpCall(full, tuple(inputs), params=tuple(params)))


_NO_TENSOR: Final = ("no tensor",)


def _tensors(arg: dict[Any, Any]) -> Any:
    """Return a tensor, a tuple of tensors for a list of tensors, or ``_NO_TENSOR``."""
    shape = arg.get("shape")
    if isinstance(shape, (list, tuple)) and "dtype" in arg:
        dims = tuple(dim if type(dim) is int and dim >= 0 else "?" for dim in shape)
        return TensorSpec(DTYPES.get(str(arg["dtype"]).removeprefix("torch."), "?"), dims)
    items = arg.get("value")
    if isinstance(items, (list, tuple)) and items and all(isinstance(i, dict) for i in items):
        tensors = tuple(_tensors(item) for item in items)
        if all(isinstance(item, TensorSpec) for item in tensors):
            return tensors
    return _NO_TENSOR


def frames_of(lines: object) -> tuple[Frame, ...]:
    """Return the frames to keep, innermost first (the marker lists them outermost first).

    Frames inside installed packages, except a model's, are left out unless there are no others.
    """
    frames = []
    for line in reversed(lines) if isinstance(lines, (list, tuple)) else ():
        file, _, number = str(line).rpartition(":")
        if file and number.isascii() and number.isdigit() and len(number) < 10:
            frames.append((file, int(number)))
    whose = (
        ((inside or frame[0], frame[1]), inside is None)
        for frame in frames
        for inside in (library_file(frame[0]),)
        if inside is not None or not is_library_s(frame[0])
    )
    return select_frames(whose, len(frames)) or tuple(frames)


def layer_of(stack: str) -> str | None:
    """Return the path of the module classes in the stack, ``Net.Conv2d(2)``; None if there is none."""
    calls = (_MODULE_CALL.match(part) for part in stack.split("/"))
    return ".".join(call.group(1) + (call.group(2) or "") for call in calls if call) or None
