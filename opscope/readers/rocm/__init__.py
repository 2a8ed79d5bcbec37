"""Read output of AMD's profilers: rocprof, rocprofv3, rocprof-sys, rocmProfileData, rocprofiler-compute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opscope.readers.heads import SQLITE

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether ``path``, a file or a folder, comes from one of AMD's profilers. Never raises."""
    if head.startswith(SQLITE):
        from . import databases  # lazy: it loads Polars

        return databases.recognise(path)
    from . import kinds

    if path.is_dir():
        return kinds.looks_ours(path)
    return kinds.kind_of(head) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
