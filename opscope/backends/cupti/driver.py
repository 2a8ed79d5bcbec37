"""The library that CUDA's driver is told to load into the program by an environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

#: The variable that names the library; CUDA's driver loads it when the program initialises CUDA.
VARIABLE: Final = "CUDA_INJECTION64_PATH"


def loads_one(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the driver is told to load a library; ``injection.is_ours`` says whether it is opscope's."""
    return bool(environ.get(VARIABLE))
