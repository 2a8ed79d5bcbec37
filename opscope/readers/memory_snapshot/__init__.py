"""Read PyTorch's memory snapshots (``torch.cuda.memory._dump_snapshot``, pickles) and memory timelines."""

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


#: JSON that begins with a list of numbers in a list.
_TIMELINE: Final = re.compile(rb"\s*\[\s*\[\s*-?[0-9]")


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is a pickle that begins like a snapshot, or JSON that begins like a timeline."""
    return _SNAPSHOT.match(head) is not None or _TIMELINE.match(head) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from opscope.readers.kineto.json_events import (
        read_blocks,
    )  # lazy: they load decoders and Polars

    from . import reader, timeline

    is_timeline = _TIMELINE.match(next(read_blocks(path), b"")) is not None
    return timeline.read(path) if is_timeline else reader.read(path)
