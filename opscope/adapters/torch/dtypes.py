"""PyTorch's dtypes under the names of the range text."""

from __future__ import annotations

from typing import Any, Final

import torch

from opscope.core.schema import DTYPE_NAMES

#: Those that this torch has; any other dtype (quantised ones, bits, two floats in a byte) keeps
#: PyTorch's own name, so that no reader takes it for a number format that it is not.
DTYPES: Final[dict[Any, str]] = {
    getattr(torch, name): short
    for name, short in {**DTYPE_NAMES, "complex32": "c32"}.items()
    if hasattr(torch, name)
}


def dtype_name(dtype: Any) -> str:
    """``f32`` for ``torch.float32``; ``qint8`` for ``torch.qint8``."""
    found = DTYPES.get(dtype)
    return str(dtype).removeprefix("torch.") if found is None else found
