"""What made the run as long as it was, and what would make it shorter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.critical import critical_path as paths
from opscope.core.analysis.critical.graph import Graph, graph
from opscope.core.analysis.critical.scaled import SCHEMA
from opscope.core.analysis.critical.what_if import Change, what_if
from opscope.core.once import once

from .base import Base, selectable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Critical(Base):
    """The critical path, its totals, and what if some work took another time."""

    @once
    def _graph(self) -> Graph | None:
        return self._make_graph()

    def _make_graph(self) -> Graph | None:
        made = graph(self.attribution)
        self._inferred = {} if made is None else dict(made.notes)
        return made

    @selectable
    def notes(self, *, critical_path: bool = False, **where: Unpack[Where]) -> pl.DataFrame:
        """The remarks on the trace by its reader and by what linked kernels to ops: what is missing, inferred
        or wrong.

        They do not depend on what else was asked of the profile. ``critical_path``: also what the critical
        path takes for granted, which takes the time of the path.
        """
        found: pl.DataFrame = self._notes()
        if not critical_path:
            return found
        if self._inferred is None:
            self._make_graph()
        told = self._inferred or {}
        rows = {"severity": ["info"] * len(told), "what": [*told], "how_many": [*told.values()]}
        return pl.concat([found, pl.DataFrame(rows, schema=found.schema)])

    @selectable
    def critical_path(self, *, categories: bool = False, **where: Unpack[Where]) -> pl.DataFrame:
        """The critical path: one row per piece, by time; each piece begins where the one before ends.

        The path goes back from the last event of the trace, always to what was waited for last, so it says
        for each moment what held up the run. The durations (ns) add up to the summary's ``wall_time``.
        ``notes(critical_path=True)`` says which dependencies are inferred because the trace does not record
        them.
        """
        frame = self._frame("critical_path", self._make_path)
        return frame if categories else self._out("critical_path", frame)

    def _make_path(self) -> pl.DataFrame:
        # of a million kernels the graph takes 0.3 GB, so only what_if keeps it: it asks again and again
        known = self.__dict__.get("_graph")
        return paths.critical_path(self._ops, known or self._make_graph())

    @selectable
    def critical_totals(self, by: str = "kind", **where: Unpack[Where]) -> pl.DataFrame:
        """The critical path's time (ns) by ``kind``, ``op``, ``layer``, ``kernel`` or ``step``.

        The times add up to the path's, except that ``kernel`` has kernels, copies and sets alone. Raises
        ValueError for another ``by``.
        """
        if by not in paths.BY:
            raise ValueError(f"by must be {', '.join(paths.BY)}, not {by!r}")
        return self._given(
            f"critical_totals({by})",
            lambda: paths.critical_totals(self.critical_path(categories=True), by),
        )

    @selectable
    def what_if(
        self,
        *,
        ops: Mapping[str, float] | None = None,
        kernels: Mapping[str, float] | None = None,
        copies: float = 1.0,
        communication: float = 1.0,
        launches: float = 1.0,
        host: float = 1.0,
        **where: Unpack[Where],
    ) -> pl.DataFrame:
        """The time that the run and each step would take if the durations of some work were multiplied.

        A factor of 0 removes work, 0.5 makes it twice as fast. ``ops``: by name, for the host's time inside
        the op and the device work launched there. ``kernels``: by name. In both, ``*`` in a name stands for
        any text. ``copies``: for all copies between memories; ``communication``: for collectives, without
        the wait for other ranks; ``launches``: for the calls that launch work and the delay until it starts;
        ``host``: for all time in which threads do not wait. All dependencies are kept: what waited still
        waits. The first row is the whole window; without a change it is the measured time exactly. Times
        are in ns. Raises ValueError for a factor below 0 or above 1000, and for a name that nothing has.
        """
        change = Change(ops or {}, kernels or {}, copies, communication, launches, host)
        if self._graph is None:
            return pl.DataFrame(schema=SCHEMA)
        return what_if(self._ops, self._graph, change)
