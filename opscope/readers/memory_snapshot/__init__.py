"""Read PyTorch's memory snapshots (``torch.cuda.memory._dump_snapshot``), which are pickles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: Begin of a pickle whose first dictionary has a key of a snapshot: the key with its length before it.
_SNAPSHOT: Final = re.compile(
    rb"\A\x80[\x02-\x05].{0,24}(?:X.{4}|\x8c.|U.)(?:segments|device_traces|allocator_settings)",
    re.DOTALL,
)


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is a pickle that begins like a memory snapshot."""
    return _SNAPSHOT.match(head) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
