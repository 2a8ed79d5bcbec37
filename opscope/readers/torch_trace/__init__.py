"""Read PyTorch's structured logs of torch.compile (``TORCH_TRACE``), which tlparse makes pages of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: How each record begins: level, date, time, process, source, and JSON whose first key is the record's kind.
RECORD: Final = re.compile(
    rb'^[VDIWEC][0-9]{4} [0-9:.]{8,18} ([0-9]{1,20}) [^\n\]]{1,512}\] (?=\{"([a-z_]{1,64})":)',
    re.MULTILINE,
)


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file begins with such a record."""
    return RECORD.match(head) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path, RECORD)
