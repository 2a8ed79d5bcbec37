"""PyTorch's dtypes under the names of the range text."""

from __future__ import annotations

from typing import Any, Final

import torch

_NAMES: Final = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
}
#: Those that this torch has; any other dtype (quantised ones, bits, two floats in a byte) keeps
#: PyTorch's own name, so that no reader takes it for a number format that it is not.
DTYPES: Final[dict[Any, str]] = {
    getattr(torch, name): short for name, short in _NAMES.items() if hasattr(torch, name)
}


def dtype_name(dtype: Any) -> str:
    """``f32`` for ``torch.float32``; ``qint8`` for ``torch.qint8``."""
    found = DTYPES.get(dtype)
    return str(dtype).removeprefix("torch.") if found is None else found
