"""Join the tables of many partials, one partial after the other, so that few of them are in memory at once.

Sums of many files are added up after every ``BATCH`` of them. The sums are of integers, so it makes no
difference which are added first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.by_range import added_ranges
from opscope.core.analysis.coverage import added_missing
from opscope.core.analysis.gaps import added_gaps
from opscope.core.analysis.kinds import added_kinds
from opscope.core.analysis.op_totals import op_totals
from opscope.core.analysis.regions import added_regions
from opscope.core.analysis.short_kernels import added_lengths
from opscope.core.analysis.summary import added
from opscope.core.analysis.totals import added_kernels, added_unattributed

from .packed import Partial

#: After so many partials their sums are added up.
BATCH: Final = 256
#: The tables that are sums over all processes, and how rows of several partials are added up.
SUMS: Final[Mapping[str, Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "op_totals": op_totals,
    "kernel_sums": added_kernels,
    "kernel_lengths": added_lengths,
    "kinds_of_kernels": added_kinds,
    "unattributed": added_unattributed,
    "gaps": added_gaps,
    "ranges": added_ranges,
    "missing": added_missing,
    "regions": added_regions,
}


class Joined:
    """The tables of all partials so far, their processes and clocks numbered as ``load`` numbers them."""

    def __init__(self) -> None:
        self.abouts: list[dict[str, Any]] = []
        self._parts: dict[str, list[pl.DataFrame]] = {}
        #: Of each partial that is kept row by row: what is added to its numbers of processes and clocks.
        self._base: dict[str, list[tuple[int, int]]] = {}
        self._next = (0, 0)
        self._summed: dict[str, int | None] = {}

    def add(self, partial: Partial) -> None:
        """Add the tables of the next partial."""
        about = dict(partial.about)
        process, clock = self._next
        about["first_process"] = process
        self._summed = added([self._summed, about.pop("summary")])
        self.abouts.append(about)
        for name, frame in partial.tables.items():
            if not frame.width:
                continue
            self._parts.setdefault(name, []).append(frame)
            if name not in SUMS:
                self._base.setdefault(name, []).append((process, clock))
        self._next = (
            max(process, 1 + process + _top(partial.tables.get("trace.processes"), "process")),
            max(clock, 1 + clock + _top(partial.tables.get("trace.clocks"), "clock_domain")),
        )
        if len(self.abouts) % BATCH == 0:
            for name in SUMS:
                if len(self._parts.get(name, ())) > 1:
                    self._parts[name] = [self.sums(name)]

    @property
    def summary(self) -> dict[str, int | None]:
        """The integers of the summary, added up."""
        return self._summed

    def sums(self, name: str) -> pl.DataFrame:
        """Return one of the tables ``SUMS`` of all partials, added up; an empty one if none has it."""
        parts = self._parts.get(name, [])
        if not parts:
            return pl.DataFrame()
        # sums of sums may have their columns in another order
        return SUMS[name](pl.concat(part.select(parts[0].columns) for part in parts))

    def rows(self, name: str) -> pl.DataFrame:
        """Return the rows of a table of all partials, in their order; and give them up."""
        parts, base = self._parts.pop(name, []), self._base.pop(name, [])
        if not parts:
            return pl.DataFrame()
        frame = pl.concat(parts)
        lengths = [len(one) for one in parts]
        moves = {"process": 0, "parent": 0, "clock_domain": 1}
        return frame.with_columns(
            (pl.col(column) + pl.Series(np.repeat([one[place] for one in base], lengths))).cast(
                frame.schema[column]
            )
            for column, place in moves.items()
            if column in frame.columns
        )

    def held(self) -> Iterable[str]:
        """Return the names of the tables that are kept row by row."""
        return list(self._base)


def _top(frame: pl.DataFrame | None, column: str) -> int:
    """Return the highest number in a column; -1 without any."""
    top: Any = None if frame is None else frame[column].max()
    return -1 if top is None else int(top)
