"""Names of element types: TensorProto's numbers and ONNX Runtime's words → opscope's dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

UNKNOWN: Final = "?"

#: ``TensorProto.DataType`` (onnx/onnx.proto) → dtype. A string has no size.
OF_NUMBER: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 8: "string", 9: "bool",
        10: "f16", 11: "f64", 12: "u32", 13: "u64", 14: "c64", 15: "c128", 16: "bf16",
        17: "f8e4m3fn", 18: "f8e4m3fnuz", 19: "f8e5m2", 20: "f8e5m2fnuz", 21: "u4", 22: "i4",
        23: "f4e2m1", 24: "f8e8m0fnu", 25: "u2", 26: "i2", 27: "f6e2m3fn", 28: "f6e3m2fn",
    }
)  # fmt: skip

#: What ``DataTypeImpl::ToString`` prints (microsoft/onnxruntime, onnxruntime/core/framework/data_types.cc),
#: in lower case → dtype.
_OF_WORD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "float": "f32", "double": "f64", "float16": "f16", "mlfloat16": "f16", "bfloat16": "bf16",
        "bool": "bool", "string": "string", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16",
        "uint32": "u32", "int32": "i32", "uint64": "u64", "int64": "i64", "uint4x2": "u4",
        "int4x2": "i4", "uint4": "u4", "int4": "i4", "uint2x4": "u2", "int2x4": "i2", "uint2": "u2",
        "int2": "i2", "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz",
        "float8e5m2": "f8e5m2", "float8e5m2fnuz": "f8e5m2fnuz", "float4e2m1x2": "f4e2m1",
        "float4e2m1": "f4e2m1", "float8e8m0": "f8e8m0fnu",
    }
)  # fmt: skip


def of_number(number: int) -> str:
    """Return the dtype of a ``TensorProto.DataType``; ``?`` if opscope does not know it."""
    return OF_NUMBER.get(number, UNKNOWN)


def of_word(word: str) -> str:
    """Return the dtype that ONNX Runtime's profile calls ``word``; ``?`` if opscope does not know it."""
    return _OF_WORD.get(word.lower(), UNKNOWN)
