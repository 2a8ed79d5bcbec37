"""The memory that the ops of a Profile use."""

from __future__ import annotations

from functools import cached_property

import polars as pl

from opscope.core.analysis.memory import memory_by_op, memory_changes, memory_peaks
from opscope.core.analysis.memory_curve import memory_curve
from opscope.core.analysis.memory_events import memory_events, memory_kinds
from opscope.core.analysis.memory_ops import memory_ops
from opscope.core.analysis.memory_steps import memory_steps

from .base import Base


class Memory(Base):
    """Memory in use."""

    @cached_property
    def _memory_changes(self) -> pl.DataFrame:
        """Each change of memory with the op that was open, in order."""
        return memory_changes(self._ops) if self.trace.has("allocations") else self._no_changes()

    def _no_changes(self) -> pl.DataFrame:
        """The changes of a trace that has none, for which its ops need not be known."""
        return self.trace["allocations"].clear().with_columns(op_row=pl.lit(0, pl.Int64))

    def memory(self) -> pl.DataFrame:
        """The peak of memory in use, by process and device; empty if memory was not recorded."""
        return self._given("memory", lambda: memory_peaks(self.trace))

    def memory_by_op(self) -> pl.DataFrame:
        """The ops that allocated memory, by how much of theirs was in use at the device's peak.

        Over all rows of a device, ``at_peak`` adds up to the peak exactly. It is null if the trace has no
        addresses or no number for the device.
        """
        return self._given("memory_by_op", lambda: memory_by_op(self._ops))

    def memory_curve(self, points: int = 1200) -> pl.DataFrame:
        """Memory in use and reserved over time, at most ``points`` rows a device; no peak is left out.

        The largest ``in_use`` of a device is its peak in ``memory()``. Raises ValueError if ``points`` is
        less than 6.
        """
        return self._given(f"memory_curve {points}", lambda: memory_curve(self.trace, points))

    def memory_ops(self) -> pl.DataFrame:
        """How much memory grew and was allocated in the ops of each name, alone and with the ops inside.

        Over all rows of a device, ``self_increase`` adds up to what memory grew by in the trace, and
        ``self_allocated`` to all that was allocated.
        """
        return self._given("memory_ops", lambda: memory_ops(self._ops, self._memory_changes))

    def memory_events(self) -> pl.DataFrame:
        """The blocks of memory: each allocation with its release, the ops of both, and its kind.

        A block that was allocated before the trace, or not released in it, has nulls and a ``reason``.
        """
        return self._given("memory_events", self._make_memory_events)

    def _make_memory_events(self) -> pl.DataFrame:
        return memory_events(self._ops, self._memory_changes)

    def memory_kinds(self) -> pl.DataFrame:
        """What was in use at the peak, by kind and layer: parameters, gradients, activations ...

        A kind is said where facts of the trace prove it, which ``reason`` names, else it is ``unknown``.
        Over all rows of a device, ``at_peak`` adds up to the peak exactly.
        """
        events = self._frame("memory_events", self._make_memory_events)
        return self._given("memory_kinds", lambda: memory_kinds(events, self._memory_changes))

    def memory_steps(self) -> pl.DataFrame:
        """What was in use as each step ended, by how much it grew, and what was kept to the end."""
        return self._given("memory_steps", lambda: memory_steps(self._ops, self._memory_changes))
