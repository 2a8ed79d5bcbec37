"""Read files of Triton's Proton: trees of totals (hatchet, in JSON or MessagePack) and Chrome traces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.readers.heads import is_json

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: A tree in JSON, whatever the order of its keys.
TREE: Final = re.compile(
    rb'\A[\xef\xbb\xbf\s]*\[\s*\{\s*"(?:children|frame|metrics)"\s*:.{0,4096}"frame"\s*:\s*\{',
    re.DOTALL,
)
#: A list of trees and their devices in MessagePack.
PACKED_TREE: Final = re.compile(
    rb"\A[\x91-\x9f][\x82-\x84].{0,40}?(?:\xa5frame|\xa7metrics|\xa8children)", re.DOTALL
)
_CALL_STACK: Final = re.compile(rb'"call_stack"\s*:|"GPU Stream [0-9]|"CPU Thread [0-9]')


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file is one of Proton's."""
    if not is_json(head):
        return PACKED_TREE.match(head) is not None
    if TREE.match(head) is not None:
        return True
    # the head of a file of Kineto shows that it is Kineto's
    is_kineto = b'"schemaVersion"' in head or b'"deviceProperties"' in head
    return b'"traceEvents"' in head and not is_kineto and _CALL_STACK.search(head) is not None


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
