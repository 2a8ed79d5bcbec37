"""Read opscope's analysed profiles: a folder of Parquet tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether the folder is a profile. A recording has a ``meta.json`` too, and is recognised before."""
    return path.is_dir() and (path / "meta.json").is_file()


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
