"""The range text's names of PyTorch's dtypes."""

from __future__ import annotations

from typing import Any, Final

import torch

from opscope.core.schema import DTYPE_NAMES

#: The short names of the dtypes that this torch has. Any other dtype (quantised, bits, two floats in a byte)
#: keeps PyTorch's name, so that no reader mistakes it for another number format.
DTYPES: Final[dict[Any, str]] = {
    getattr(torch, name): short
    for name, short in {**DTYPE_NAMES, "complex32": "c32"}.items()
    if hasattr(torch, name)
}


def dtype_name(dtype: Any) -> str:
    """Return ``f32`` for ``torch.float32``, ``qint8`` for ``torch.qint8``."""
    name = DTYPES.get(dtype)
    return str(dtype).removeprefix("torch.") if name is None else name
