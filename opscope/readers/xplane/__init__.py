"""Read XPlane files of jax.profiler, TensorFlow and PyTorch/XLA, and the trace viewer's JSON beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opscope.readers.heads import is_json

from .found import files, is_space

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether ``path`` is one of these files, or a folder that the profiler wrote. Raises OSError."""
    if path.is_dir():
        return bool(files(path))
    if is_json(head):
        from . import viewer_json  # lazy: it loads Polars

        return viewer_json.recognise(head)
    return is_space(head)


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
