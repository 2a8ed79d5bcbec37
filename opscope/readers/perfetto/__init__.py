"""Read Perfetto's traces (``.pftrace``) of programs and profilers: opscope's export, rocprofv3, Proton."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

_TEXT: Final = re.compile(rb"[\t\n\r -~\x80-\xff]*")
_NAME: Final = re.compile(r".*\.(?:pftrace|perfetto-trace|perfetto)(?:\.gz|\.zst)?\Z")
#: Fields that nearly all of Perfetto's packets have: time, track event, sequence, clocks, track.
_PACKET_FIELDS: Final = frozenset((8, 10, 11, 13, 33, 36, 41, 42, 58, 60))


def recognise(head: bytes, path: Path) -> bool:
    """Whether the file begins with a packet of Perfetto's."""
    from opscope.core.hlo.wire import WireError, varint, walk  # lazy: few files are protobuf

    try:
        if head[:1] != b"\x0a" or _TEXT.fullmatch(head):  # a text may begin with an empty line
            return False
        size, at = varint(head, 1, len(head))
        is_named = _NAME.match(path.name) is not None
        return is_named or any(
            number in _PACKET_FIELDS for number, *_ in walk(head, at, min(at + size, len(head)))
        )
    except (WireError, IndexError):
        return False


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput."""
    from . import reader  # lazy: it loads Polars

    return reader.read(path)
