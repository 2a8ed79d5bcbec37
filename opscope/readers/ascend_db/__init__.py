"""Read the databases of Ascend's profilers: torch_npu's ``ascend_pytorch_profiler_*.db``, ``msprof_*.db``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opscope.readers.heads import SQLITE

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is such a database. Never raises."""
    if not head.startswith(SQLITE):
        return False
    from . import reader  # lazy: it loads Polars

    return reader.recognise(path)


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
