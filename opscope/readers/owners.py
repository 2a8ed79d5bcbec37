"""Decide which tool wrote a file of trace events, from all of its events, whatever their order. Usually the
first bytes show the format (``looks``). If they do not, the general JSON reader asks here after decoding the
whole file."""

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
    """Return the reader for a timeline with these names of processes and categories; None if there is
    none."""
    names = set(processes)
    if any(_CANN.fullmatch(name) for name in names):
        return "mindspore"
    if any(_XLA.fullmatch(name) for name in names):
        return "xplane"
    return "onnxruntime" if set(categories) >= _SESSIONS else None
