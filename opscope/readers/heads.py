"""Recognise a file by its first bytes."""

from __future__ import annotations

import sys
from typing import Final

#: The first bytes of a report of Nsight Compute.
NSIGHT_COMPUTE: Final = b"NVR\0"
SQLITE: Final = b"SQLite format 3\0"
#: Suffixes of a database's side files: its log and its journal.
SIDES: Final = ("-wal", "-journal")
#: The first bytes of files compressed with gzip and zstd.
PACKED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
#: The module that unpacks zstd: from the standard library, or its backport for older Pythons.
ZSTD_MODULE: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


def is_json(head: bytes) -> bool:
    """Whether ``head`` may begin a JSON object or array."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def is_pickle(head: bytes) -> bool:
    """Whether ``head`` begins a pickle of protocol 2 or later."""
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5
