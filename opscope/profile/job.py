"""The ranks of a job: communication, groups, clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.ranks import distributed
from opscope.core.once import once
from opscope.core.tables import ranks
from opscope.core.tables.columns import as_text

from .base import Base, selectable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Job(Base):
    """What many ranks do together."""

    @once
    def _exchanged(self) -> pl.DataFrame:
        return timed.exchanged(self.attribution)

    def _exchanged_in(self) -> Iterator[pl.DataFrame]:
        """Yield ``_exchanged`` in pieces, the rows of a process in one of them."""
        yield self._exchanged

    @selectable
    def communication(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Communication per process: its share of the time, how much of it other work hides, and how long
        the process waited for other ranks.

        Times lie inside the window from the first captured step to the last. They are times of kernels, or
        without a GPU of ops.
        """
        return self._told("communication")

    def _make_communication(self) -> pl.DataFrame:
        return distributed.communication(self._own_communication, self._exchanged)

    @once
    def _own_communication(self) -> pl.DataFrame:
        return distributed.own_communication(self.attribution, self._exchanged)

    @selectable
    def collectives(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Collectives by process group, kind, dtype and reduction, all ranks added up, by time.

        The bus bandwidth follows the definition of nccl-tests.
        """
        return self._told("collectives")

    def _make_collectives(self) -> pl.DataFrame:
        return distributed.collectives(self._exchanged)

    @selectable
    def groups(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The process groups that each process is a member of, and their ranks."""
        return ranks.groups(self.trace)

    @selectable
    def meshes(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The dimensions of each DeviceMesh, and the coordinate of each process along them.

        If a process is not in the mesh, its ``coordinate`` and ``group`` are null.
        """
        return ranks.meshes(self.trace)

    @selectable
    def clocks(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How each machine's clock was aligned with the first machine's, and how exactly."""
        return as_text(distributed.clocks(self.trace))
