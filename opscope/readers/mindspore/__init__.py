"""Read output of MindSpore's profiler: one of its files, or its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file, or the folder, is of MindSpore's profiler. Never raises."""
    from . import files  # lazy: needed only for files that no other reader recognises

    if path.is_dir():
        return files.looks_ours(path)
    return files.kind_of(head, path.name) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
