"""Read Nsight Systems: SQLite, Parquet and Arrow exports, and reports (``.nsys-rep``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opscope.readers.heads import is_json

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether ``path``, a file or a folder, is a report or an export. Never raises."""
    if is_json(head):
        return False
    from . import reader  # lazy: it loads Polars

    return reader.recognise(path)


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)


def read_lean(path: Path) -> Trace:
    """Return the trace without the columns that no total needs: half of what there is to read of a kernel."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path, lean=True)
