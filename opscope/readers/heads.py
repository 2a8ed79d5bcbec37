"""What the first bytes of a file say of it."""

from __future__ import annotations

from typing import Final

SQLITE: Final = b"SQLite format 3\0"
#: Files packed by gzip and zstd.
PACKED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def is_json(head: bytes) -> bool:
    """Whether an object or an array of JSON may begin so."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
