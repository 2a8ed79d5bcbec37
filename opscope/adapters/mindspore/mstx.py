"""Marks for Ascend's profilers: if ops run on Ascend, every range also goes to ``mindspore.profiler.mstx``.

On other devices, MindSpore's functions do nothing, and are not called.
"""

from __future__ import annotations

import threading
from typing import Any

from mindspore import context

from opscope.core.capture.emit import Prepared

#: The most bytes in a mark of mstx.
MAX_BYTES = 255


def on_ascend() -> bool:
    """Whether the program's ops run on Ascend."""
    return str(context.get_context("device_target")) == "Ascend"


class Marked:
    """An emitter whose ranges also go to mstx. It has the methods of ``Emitter`` that the adapter uses."""

    def __init__(self, emitter: Any, marks: Any) -> None:
        self._emitter = emitter
        self._marks = marks
        self._open = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emitter, name)

    def push(self, prepared: Prepared, seq: int = -1, fwd_thread: int = 0) -> None:
        """Push a range, and start one of mstx."""
        self._emitter.push(prepared, seq, fwd_thread)
        ranges = self._ranges()
        ranges.append(self._marks.range_start(_cut(prepared.text)))

    def pop(self, complete: Prepared | None = None) -> None:
        """Pop opscope's range, and end the range of mstx."""
        ranges = self._ranges()
        if ranges:
            self._marks.range_end(ranges.pop())
        self._emitter.pop(complete)

    def mark_step(self, number: int) -> None:
        """Mark that a step is next."""
        if self._emitter.active:
            self._marks.mark(f"step {number}")

    def _ranges(self) -> list[int]:
        ranges: list[int] | None = getattr(self._open, "ranges", None)
        if ranges is None:
            ranges = self._open.ranges = []
        return ranges


def _cut(text: str) -> str:
    data = text.encode()
    return text if len(data) <= MAX_BYTES else data[:MAX_BYTES].decode("utf-8", "ignore")
