"""The memory that the ops of a Profile use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.memory import memory_by_op, memory_peaks

from .base import Base, selectable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Memory(Base):
    """Memory in use."""

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
        return self._given("memory_by_op", lambda: memory_by_op(self._ops))
