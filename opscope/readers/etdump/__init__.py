"""Read ExecuTorch's ETDump (``.etdp``): what ran in each run of a method, and how long."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: A flatbuffer's root and its identifier; most writers put the size of the buffer before them.
HEAD: Final = re.compile(rb"(.{4})?.{4}ED([0-9]{2})", re.DOTALL)


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is an ETDump."""
    return HEAD.match(head) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path, HEAD)
