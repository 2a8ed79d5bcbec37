"""Decode one file of a TensorRT engine, JSON or log, compressed or not."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

from opscope.core import progress
from opscope.readers.errors import BadInput
from opscope.readers.heads import PACKED
from opscope.readers.kineto.json_events import whole_file

from . import log
from .parts import Part, of_json

#: Largest file, bytes. The largest real ones (a timing file of an hour) have some tens of megabytes.
LARGEST: Final = 512 << 20
#: How a log may begin that is not a JSON list.
_LINE: Final = re.compile(rb"\[(?:\d\d/\d\d/\d{4}-|TRT\] |[EWIV]\] )")


def decode(path: Path) -> Part:
    """Return the content of the file. Raises BadInput, which says what is wrong with it."""
    body = _bytes(path)
    progress.read_whole(path)
    text = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] not in (b"{", b"[") or _LINE.match(text):
        return log.read(path, body)
    try:
        return of_json(path, text)
    except BadInput as error:
        if log.LAYERS.match(text[:256].decode("utf-8", "replace")):
            with contextlib.suppress(BadInput):
                return log.read(path, body)  # lines of a log follow the layers
        raise error


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(path, f"larger than {LARGEST >> 20} MB, which no file of an engine is")
        body = path.read_bytes()
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error
    if not body.startswith(PACKED):
        return body
    return whole_file(path, LARGEST, f"larger than {LARGEST >> 20} MB when decompressed")
