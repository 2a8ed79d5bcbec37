"""Make CUPTI's activity records and the files of a recording that has them."""

from __future__ import annotations

import json

import numpy as np

from opscope.core.cupti import files, kinds, layouts

#: A version of CUPTI whose number decides its layouts, and whose layouts have all fields.
VERSION = 130500


def record(kind: int, version: int = VERSION, layout=None, **fields) -> bytes:
    """The bytes of one record; dots in the names of fields are written as two underscores."""
    layout = layout or layouts.candidates(version)[0]
    row = np.zeros(1, layout.dtypes[kind])
    row["kind"] = kind
    for name, value in fields.items():
        row[name.replace("__", ".")] = value
    return row.tobytes()


def call(start, end, correlation, cbid=211, thread=1, kind=kinds.RUNTIME, version=VERSION):
    return record(
        kind, version, cbid=cbid, start=start, end=end, correlationId=correlation, threadId=thread
    )


def kernel(start, end, correlation, name=0x1000, version=VERSION, **fields):
    shape = {"gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
    place = {"deviceId": 0, "contextId": 1, "streamId": 7}
    return record(
        kinds.CONCURRENT_KERNEL, version, start=start, end=end, correlationId=correlation, name=name,
        **{**shape, **place, **fields},
    )  # fmt: skip


def buffers(*contents: bytes) -> bytes:
    """The content of ``cupti.raw`` with these buffers."""
    return b"".join(
        files.BUFFER.pack(files.MARK, len(content), 1_000 + number, 1, 0) + content
        for number, content in enumerate(contents)
    )


def write(folder, *contents: bytes, facts=(), version: int = VERSION, names=None):
    """Write both files into a recording's part; ``facts``: further lines. Returns the facts' path."""
    if contents:
        (folder / files.RAW).write_bytes(buffers(*contents))
    texts = {0x1000: "kernel_a", 0x2000: "kernel_b"} if names is None else names
    lines = [
        {"version": version, "kinds": [3, 5, 10], "pointer_bytes": 8},
        {"names": {str(address): text for address, text in texts.items()}},
        *facts,
    ]
    path = folder / files.FACTS
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
