"""Have Polars keep freed memory for a second instead of half a second: a command soon needs as much again.

With a million kernels this saves ``opscope advise`` 0.4 to 0.7 of 8 s and ``opscope diff`` 0.3 of 10 s,
without a larger peak. Five seconds would save ``diff`` another 0.3 s, but cost 0.3 GB.

Python's collector runs after more new objects than its default of 700 (2,000 since 3.13): reading text makes
many objects and few cycles. This saves 3 % of the CPU time of a small report, and 7 % for a trace of 1 MB;
the peak is the same.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar, cast

#: Options of jemalloc, the allocator that Polars is built with; its manual lists them under TUNING.
#: It reads them when it is loaded.
_VARIABLE: Final = "_RJEM_MALLOC_CONF"
_OPTIONS: Final = "dirty_decay_ms:1000"
#: Number of new objects after which Python looks for cycles among them.
_OBJECTS: Final = 20_000
_Command = TypeVar("_Command", bound=Callable[..., Any])


def with_kept_pages(command: _Command) -> _Command:
    """Make a command load Polars with these settings. The user's settings stay; child processes do not get
    ours."""

    @wraps(command)
    def loaded(*args: Any, **options: Any) -> Any:
        gc.set_threshold(_OBJECTS, 20)
        if _VARIABLE in os.environ or "polars" in sys.modules:
            return command(*args, **options)
        os.environ[_VARIABLE] = _OPTIONS
        try:
            import polars  # noqa: F401
        finally:
            del os.environ[_VARIABLE]
        return command(*args, **options)

    return cast(_Command, loaded)
