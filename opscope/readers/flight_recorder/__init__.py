"""Read the dumps of PyTorch's flight recorder (``TORCH_FR_BUFFER_SIZE``), of NCCL, gloo and others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.readers.heads import is_json, is_pickle

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: Begin of a pickle whose first dictionary has a key of such a dump: the key with its length before it.
_PICKLE: Final = re.compile(
    rb"(?:X.{4}|\x8c.|U.)(?:pg_config|pg_status|nccl_comm_state|comm_lib_version|profiling_name)",
    re.DOTALL,
)
#: Keys of the JSON, in alphabetical order or as they were added. In a trace of ``torch.profiler``
#: ``pg_config`` is a list, and its events may begin far behind the head.
_JSON: Final = re.compile(
    rb'\A\s*\{.*"(?:pg_config|pg_status)"\s*:\s*\{|\A\s*\{.*"entries"\s*:\s*\[.*"profiling_name"\s*:',
    re.DOTALL,
)
_SEARCHED: Final = 1 << 16
_OF_KINETO: Final = (
    b'"traceEvents"',
    b'"schemaVersion"',
    b'"deviceProperties"',
    b'"distributedInfo"',
)


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is such a dump, as a pickle or as JSON, and not a trace of ``torch.profiler``."""
    if is_pickle(head):
        return _PICKLE.search(head[:_SEARCHED]) is not None
    if not is_json(head) or any(key in head for key in _OF_KINETO):
        return False
    return _JSON.match(head[:_SEARCHED]) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
