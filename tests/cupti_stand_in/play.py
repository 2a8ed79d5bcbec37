"""Write the activity that the stand-in for CUPTI plays: templates of records, in the layouts of a version."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from opscope.core.cupti import kinds, layouts

NONE = 0xFFFFFFFF
#: The names of the fields that the stand-in fills in.
PLACES = ("start", "end", "correlationId", "threadId", "processId", "name", "graphNodeId")


@dataclass
class Activity:
    """Templates of records in the layouts of CUPTI's ``version``; numbers of templates are in their order."""

    version: int = 28
    texts: dict[str, int] = field(default_factory=dict)
    templates: list[bytes] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    layout: int = 0

    def add(
        self,
        kind: int,
        name: str | None = None,
        start: int = 0,
        duration: int = 0,
        **fields: int,
    ) -> int:
        """Add a template; ``start`` is relative to the time it is played at. Return its number."""
        record = np.zeros(1, self.types()[kind])
        for key, value in fields.items():
            record[key] = value
        self.used.add(kind)
        number = NONE if name is None else self.texts.setdefault(name, len(self.texts))
        self.templates.append(
            struct.pack("<IIqq", kind, number, start, duration) + record.tobytes()
        )
        return len(self.templates) - 1

    def kernel(self, name: str, start: int = 0, duration: int = 1000, **fields: int) -> int:
        """Add a kernel of one block on stream 7 of device 0, unless ``fields`` say otherwise."""
        usual = {"gridX": 1, "gridY": 1, "gridZ": 1, "blockX": 32, "blockY": 1, "blockZ": 1}
        return self.add(
            kinds.CONCURRENT_KERNEL, name, start, duration,
            **{**usual, "streamId": 7, "contextId": 1, **fields},
        )  # fmt: skip

    def call(self, cbid: int = 211, kind: int = kinds.RUNTIME) -> int:
        """Add a call of CUDA's runtime (211: cudaLaunchKernel) or driver."""
        return self.add(kind, cbid=cbid)

    def types(self) -> Mapping[int, np.dtype]:
        """The types of records by kind."""
        return layouts.candidates(self.version)[self.layout].dtypes

    def write(self, path: Path) -> Path:
        """Write the file."""
        types = self.types()
        pieces = [
            struct.pack(
                "<8sIIII", b"STANDIN1", len(self.used), len(self.texts), len(self.templates), 0
            )
        ]
        for kind in sorted(self.used):
            dtype = types[kind]
            fields = dtype.fields or {}
            offsets = [fields[name][1] if name in fields else NONE for name in PLACES]
            pieces.append(struct.pack("<9I", kind, dtype.itemsize, *offsets))
        for text in self.texts:
            raw = text.encode()
            pieces.append(struct.pack("<I", len(raw)) + raw)
        path.write_bytes(b"".join((*pieces, *self.templates)))
        return path
