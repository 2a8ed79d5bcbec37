"""The memory that the ops of a Profile use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl

from opscope.core.analysis.memory.memory import BY_OP, memory_by_op, memory_changes, memory_peaks
from opscope.core.analysis.memory.memory_curve import memory_curve
from opscope.core.analysis.memory.memory_events import EVENTS, KINDS, memory_events, memory_kinds
from opscope.core.analysis.memory.memory_ops import OPS, memory_ops
from opscope.core.analysis.memory.memory_steps import STEPS, memory_steps
from opscope.core.analysis.ops.ops import Ops
from opscope.core.once import once

from .base import Base, selectable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Memory(Base):
    """Memory in use."""

    @once
    def _memory_changes(self) -> pl.DataFrame:
        """Each change of memory with the op that was open, in order."""
        return memory_changes(self._ops)

    def _of_memory(
        self, name: str, schema: Any, make: Callable[[Ops, pl.DataFrame], pl.DataFrame]
    ) -> pl.DataFrame:
        """Return the frame that ``make`` makes of the ops and the changes of memory.

        Without memory it is empty, and nothing asks for the ops: attribution takes the longest of all.
        """
        if self.trace["allocations"].is_empty():
            return self._frame(name, lambda: pl.DataFrame(schema=schema))
        return self._frame(name, lambda: make(self._ops, self._memory_changes))

    @selectable
    def memory(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The peak of memory in use, by process and device; empty if memory was not recorded."""
        return self._given("memory", lambda: memory_peaks(self.trace))

    @selectable
    def memory_by_op(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The ops that allocated memory, by how much of theirs was in use at the device's peak.

        Over all rows of a device, ``at_peak`` adds up to the peak exactly. It is null if the trace has no
        addresses or no number for the device.
        """
        return self._out("memory_by_op", self._of_memory("memory_by_op", BY_OP, memory_by_op))

    @selectable
    def memory_curve(self, points: int = 1200, **where: Unpack[Where]) -> pl.DataFrame:
        """Memory in use and reserved over time, at most ``points`` rows a device; no peak is left out.

        The largest ``in_use`` of a device is its peak in ``memory()``. Raises ValueError if ``points`` is
        less than 6.
        """
        return self._given(f"memory_curve {points}", lambda: memory_curve(self.trace, points))

    @selectable
    def memory_ops(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How much memory grew and was allocated in the ops of each name, alone and with the ops inside.

        Over all rows of a device, ``self_increase`` adds up to what memory grew by in the trace, and
        ``self_allocated`` to all that was allocated.
        """
        return self._out("memory_ops", self._of_memory("memory_ops", OPS, memory_ops))

    @selectable
    def memory_events(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The blocks of memory: each allocation with its release, the ops of both, and its kind.

        A block that was allocated before the trace, or not released in it, has nulls and a ``reason``.
        """
        return self._out("memory_events", self._of_memory("memory_events", EVENTS, memory_events))

    @selectable
    def memory_kinds(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What was in use at the peak, by kind and layer: parameters, gradients, activations ...

        A kind is said where facts of the trace prove it, which ``reason`` names, else it is ``unknown``.
        Over all rows of a device, ``at_peak`` adds up to the peak exactly.
        """
        events = self._of_memory("memory_events", EVENTS, memory_events)

        def make(_: Ops, changes: pl.DataFrame) -> pl.DataFrame:
            return memory_kinds(events, changes)

        return self._out("memory_kinds", self._of_memory("memory_kinds", KINDS, make))

    @selectable
    def memory_steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What was in use as each step ended, by how much it grew, and what it left in use."""
        return self._out("memory_steps", self._of_memory("memory_steps", STEPS, memory_steps))
