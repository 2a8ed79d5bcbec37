"""Say whose timeline a file of trace events is, from all of its events: their order is no matter.

The first bytes tell a format where they show it (``looks``). Where they do not, the reader of all JSON has
decoded the whole file when it asks here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: Names of processes that only CANN's and MindSpore's timelines have.
_CANN: Final = re.compile(
    r"Ascend Hardware.{0,20}|CANN|AI Core Freq|NPU MEM|AICORE OP|AICPU OP|CPU OP[^\"]{0,20}|Overlap Analysis"
)
#: Names of the processes of XLA's profiler.
_XLA: Final = re.compile(r"/(?:host:CPU|device:[A-Z]+:\d+)(?: .*)?")
#: Categories that every profile of ONNX Runtime has.
_SESSIONS: Final = frozenset(("Session", "Node"))


def owner(processes: Iterable[str], categories: Iterable[str] = ()) -> str | None:
    """Return the reader of the timeline with these names of processes and categories; None if none is its
    own."""
    names = set(processes)
    if any(_CANN.fullmatch(name) for name in names):
        return "mindspore"
    if any(_XLA.fullmatch(name) for name in names):
        return "xplane"
    return "onnxruntime" if set(categories) >= _SESSIONS else None
