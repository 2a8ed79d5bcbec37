"""Read the output of PyProf's ``parse`` (``net.dict``): a dictionary in Python's syntax per line and
kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: The first key of a line; Python 2 wrote them in any order.
_BEGINS: Final = re.compile(rb"\s*\{u?'\w+'\s*:")


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is PyProf's dictionaries. Never raises."""
    return b"'kShortName'" in head and _BEGINS.match(head) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
