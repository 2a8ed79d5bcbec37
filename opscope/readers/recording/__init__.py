"""Read opscope's raw recordings, as the recorder writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .parts import is_part

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether the folder is a recording, or one process's part of a recording. Raises OSError."""
    return path.is_dir() and (is_part(path) or any(map(is_part, path.glob("part-*"))))


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
