"""Nsight Systems: SQLite, Parquet and Arrow exports, and reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opscope.readers.heads import is_json

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether ``path`` is a report or an export, a file or a folder. Never raises."""
    if is_json(head):
        return False
    from . import reader  # lazy: it loads Polars

    return reader.recognise(path)


def read(path: Path) -> Trace:
    """The trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)


def read_lean(path: Path) -> Trace:
    """The trace without the columns of which no total is made: half of what there is to read of a kernel."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path, lean=True)
