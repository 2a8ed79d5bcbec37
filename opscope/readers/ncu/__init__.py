"""Read measurements of Nsight Compute: ``ncu --csv`` (raw and details pages) and its reports
(``.ncu-rep``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.readers.heads import NSIGHT_COMPUTE

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: The first column of ncu's tables, after any text of the program and of ncu itself.
_HEADER: Final = re.compile(
    rb'(?:^|\n)(?:\xef\xbb\xbf)?"?(?:ID"?[,;\t]"?(?:Process ID|Kernel Name|Process Name)'
    rb'|Process ID"?[,;\t]"?Process Name)'
)
_SAYS: Final = re.compile(rb"(?:^|\n)(?:\xef\xbb\xbf)?==(?:PROF|ERROR|WARNING)== ")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is ncu's. Never raises."""
    if head.startswith(NSIGHT_COMPUTE):
        return True
    if head.startswith(_UTF16):  # PowerShell writes redirected output in UTF-16
        head = head.decode("utf-16", "ignore").encode()
    return bool(_SAYS.search(head) or _HEADER.search(head))


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
