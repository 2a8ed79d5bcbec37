"""Which library CUDA's driver is told to load in the program, by an environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

#: CUDA's driver loads the library that this names when the program initialises CUDA.
VARIABLE: Final = "CUDA_INJECTION64_PATH"


def loads_one(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether it is told to load one; ``injection.is_ours`` says whether that is ours."""
    return bool(environ.get(VARIABLE))
