"""The ranks of a job: communication, groups, clocks."""

from __future__ import annotations

from functools import cached_property

import polars as pl

from opscope.core.analysis import distributed
from opscope.core.tables import ranks
from opscope.core.tables.columns import as_text

from .base import Base


class Job(Base):
    """What many ranks do together."""

    @cached_property
    def _exchanged(self) -> pl.DataFrame:
        return distributed.exchanged(self.attribution)

    def communication(self) -> pl.DataFrame:
        """Communication per process: its share of the time, how much of it other work hides, and how long
        the process waited for other ranks.

        Times lie inside the window from the first captured step to the last. They are times of kernels, or
        without a GPU of ops.
        """
        return self._given(
            "communication", lambda: distributed.communication(self.attribution, self._exchanged)
        )

    def collectives(self) -> pl.DataFrame:
        """Collectives by process group, kind, dtype and reduction, all ranks added up, by time.

        The bus bandwidth follows the definition of nccl-tests.
        """
        return self._given("collectives", lambda: distributed.collectives(self._exchanged))

    def groups(self) -> pl.DataFrame:
        """The process groups that each process is a member of, and their ranks."""
        return ranks.groups(self.trace)

    def meshes(self) -> pl.DataFrame:
        """The dimensions of each DeviceMesh, and the coordinate of each process along them.

        If a process is not in the mesh, its ``coordinate`` and ``group`` are null.
        """
        return ranks.meshes(self.trace)

    def clocks(self) -> pl.DataFrame:
        """How each machine's clock was aligned with the first machine's, and how exactly."""
        return as_text(distributed.clocks(self.trace))
