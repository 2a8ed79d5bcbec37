"""Read Kineto's traces: the JSON files of torch.profiler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opscope.readers.heads import is_json

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is JSON. The content is not checked here: ``read`` says what is missing."""
    return is_json(head)


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from opscope.core.tables.columns import hand_back  # lazy: it loads Polars

    from . import reader

    trace = reader.read(path)
    hand_back()  # of two million events, glibc keeps 0.1 GB of the columns that the tables were made of
    return trace
