"""Describe the values that sessions take and give: NumPy arrays, OrtValues, and what a model declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from onnxruntime.capi import _pybind_state as native
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue

from opscope.core.schema import DTYPE_NAMES, Arg, Dim, TensorSpec

#: ONNX's names of element types, where they are not those that NumPy and the frameworks agree on.
_ONNX: Final[Mapping[str, str]] = {
    "float": "f32",
    "double": "f64",
    "float16": "f16",
    "float8e4m3fn": "f8e4m3fn",
    "float8e4m3fnuz": "f8e4m3fnuz",
    "float8e5m2": "f8e5m2",
    "float8e5m2fnuz": "f8e5m2fnuz",
    "float4e2m1": "f4e2m1",
    "int4": "i4",
    "uint4": "u4",
}
#: What identifies a value's type and sizes; equal keys have equal specs.
Key = tuple[Any, ...]
_UNKNOWN: Final[Key] = ()


def key_of(value: Any) -> Key:
    """Return a key of a value's type and sizes: cheap, hashable, and equal for equal ones.

    ``()`` for a value whose sizes are unknown without converting it (lists, sequences, maps).
    """
    if type(value) is np.ndarray:
        return value.dtype, value.shape
    if type(value) is OrtValue:
        value = value._ortvalue
    if type(value) is native.OrtValue:
        return (value.data_type(), tuple(value.shape())) if value.is_tensor() else _UNKNOWN
    if isinstance(value, np.generic | np.ndarray):
        return value.dtype, value.shape
    dense = getattr(value, "dense_shape", None)  # a SparseTensor
    if callable(dense):
        return "sparse", value.data_type(), tuple(dense())
    return _UNKNOWN


def spec_of(key: Key, declared: TensorSpec | None) -> Arg:
    """Return the spec of a value with this key; if the value shows none, the one that the model declares."""
    if not key:
        return declared
    if key[0] == "sparse":
        return TensorSpec(dtype_of(key[1]), key[2], layout="other")
    kind, shape = key
    if isinstance(kind, str):
        return TensorSpec(dtype_of(kind), shape)
    if kind.kind in "OSU":
        return TensorSpec("string", shape)
    return TensorSpec(DTYPE_NAMES.get(kind.name, "?"), shape)


def dtype_of(kind: str) -> str:
    """Return opscope's name of the element type of ``tensor(float)`` or ``sparse_tensor(float)``."""
    inner = kind.rpartition("(")[2].rstrip(")")
    if inner == "string":
        return "string"
    return _ONNX.get(inner) or DTYPE_NAMES.get(inner, "?")


def declared_specs(nodes: Iterable[Any]) -> dict[str, TensorSpec | None]:
    """Return name → spec of a session's inputs or outputs; None for values that are not tensors."""
    specs: dict[str, TensorSpec | None] = {}
    for node in nodes:
        is_tensor = str(node.type).startswith("tensor(")
        dims = tuple(map(_dim, node.shape)) if is_tensor else ()
        specs[node.name] = TensorSpec(dtype_of(node.type), dims) if is_tensor else None
    return specs


def _dim(size: object) -> Dim:
    return size if isinstance(size, int) else "?"
