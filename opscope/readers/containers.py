"""Recognise archives, files packed twice and text in UTF-16, which ``unpacking`` unpacks to scratch.

``zip``, ``tar`` (plain or packed), ``bz2``, ``xz``, ``gzip`` or ``zstd`` within another packing, a database
that is packed, and text in UTF-16. A file that is packed once with gzip or zstd is none of these: readers
unpack it as they read.
"""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import Final

from .heads import PACKED, SQLITE

ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
XZ: Final = b"\xfd7zXZ\0"
BZ2: Final = b"BZh"


def recognise(head: bytes, path: Path) -> bool:
    """Whether ``unpacking`` handles ``path``; ``head`` is its beginning, unpacked once. Raises OSError."""
    if is_archive(head) or head.startswith((XZ, BZ2, *PACKED)) or encoding(head):
        return True
    return head.startswith(SQLITE) and _starts(path).startswith(PACKED)


def split(path: Path) -> tuple[Path, str] | None:
    """Return archive and member of ``archive.zip!member``; None for any other path."""
    text = os.fspath(path)
    at = text.find("!")
    while at > 0 and not os.path.lexists(text):
        if os.path.isfile(text[:at]) and text[at + 1 :]:
            return Path(text[:at]), text[at + 1 :].strip("/")
        at = text.find("!", at + 1)
    return None


def is_archive(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a zip or tar archive."""
    return head.startswith(ZIP) or head[257:262] == b"ustar" or _is_old_tar(head)


def _is_old_tar(head: bytes) -> bool:
    """Whether ``head`` begins with an entry of tar before POSIX, recognised only by its checksum."""
    said = head[148:156].strip(b"\0 ")
    if len(head) < 512 or not said.isdigit() or b"8" in said or b"9" in said:
        return False
    return int(said, 8) == sum(head[:148]) + 8 * 0x20 + sum(head[156:512])


def encoding(head: bytes) -> str | None:
    """Return the encoding of text in UTF-16 or UTF-32, by its byte order mark or by the first bytes of
    JSON."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if re.match(rb"[\[{]\0[^\0]\0", head):
        return "utf-16-le"
    return "utf-16-be" if re.match(rb"\0[\[{]\0[^\0]", head) else None


def _starts(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)
