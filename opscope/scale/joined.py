"""Join the tables of many partials, one partial after the other, so that few of them are in memory at once.

Sums are added up after every ``BATCH`` files. They are sums of integers, so the order of addition does not
matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.summary.summary import added
from opscope.core.tables.narrow import Narrow

from .answered import sums
from .packed import Partial

#: Number of partials after which their sums are added up.
BATCH: Final = 256
#: Keys of a file's origin that are kept beyond the first ``ORIGINS`` files: a path for every file takes too
#: much memory.
_KINDS: Final = ("format", "tool", "version", "times", "files", "failed")
ORIGINS: Final = 1000
#: Number of partials whose devices keep their stretches of work: 20 kilobytes each.
SPANS: Final = 4096
#: Texts with few distinct values: as categories they take 4 bytes a row instead of 16.
_ALIKE: Final = dict.fromkeys(
    ("exchanges", "calls_made"), ("group", "members", "kind", "dtype", "reduction")
)


class Joined:
    """The tables of all partials so far, with processes and clocks numbered as ``load`` numbers them."""

    def __init__(self) -> None:
        self.abouts: list[dict[str, Any]] = []
        #: Whether the files belong to several jobs, and notes (severity, what) on how they are related.
        self.unrelated = False
        self.notes: list[tuple[str, str]] = []
        #: Per table of sums: the sum so far, and the parts since.
        self._sums: dict[str, list[pl.DataFrame]] = {}
        #: Per table that is kept row by row: large parts with final numbers, and newer small parts, each with
        #: the offsets to add to its process and clock numbers.
        self._whole: dict[str, Narrow] = {}
        self._since: dict[str, list[tuple[pl.DataFrame, int, int]]] = {}
        self._next = (0, 0)
        self._added = {how.table: how.added for how in sums().values()}
        self._summed: dict[str, int | None] = {}

    def add(self, partial: Partial) -> None:
        """Add the tables of the next partial."""
        process, clock = self._next
        about = {name: partial.about[name] for name in _KEPT}
        if len(self.abouts) >= ORIGINS:
            origin = about["origin"]
            about["origin"] = {name: origin[name] for name in _KINDS if name in origin}
        about["present"] = _share(about["present"])
        about["domains"] = _share(about["domains"])
        about["calls"] = _share(about["calls"])
        about["first_process"] = process
        about["place"] = partial.about["source"]["place"]
        self._summed = added([self._summed, partial.about["summary"]])
        self.abouts.append(about)
        for name, frame in partial.tables.items():
            if not frame.width or (name == "device_spans" and len(self.abouts) > SPANS):
                continue
            if name in self._added:
                self._sums.setdefault(name, []).append(frame)
            else:
                self._since.setdefault(name, []).append((frame, process, clock))
        self._next = (
            max(process, 1 + process + _top(partial.tables.get("trace.processes"), "process")),
            max(clock, 1 + clock + _top(partial.tables.get("trace.clocks"), "clock_domain")),
        )
        if len(self.abouts) % BATCH == 0:
            self._compact()

    def _compact(self) -> None:
        """Join the many small frames into one: a frame takes some kilobytes however little it holds."""
        for name in list(self._sums):
            self._sums[name] = [self.sums(name)]
        for name in list(self._since):
            self._whole.setdefault(name, Narrow()).add(_number(name, self._since.pop(name)))

    @property
    def summary(self) -> dict[str, int | None]:
        """The integers of the summary, added up."""
        return self._summed

    def sums(self, name: str) -> pl.DataFrame:
        """Return a table of sums over all partials; empty if no partial has it."""
        parts = self._sums.get(name, [])
        if not parts:
            return pl.DataFrame()
        # sums of sums may have their columns in another order
        columns = parts[-1].columns
        return self._added[name](
            pl.concat(part if part.columns == columns else part.select(columns) for part in parts)
        )

    def narrow(self, name: str) -> Narrow:
        """Return the rows of a table of all partials, in order, and release them here."""
        joined_rows = self._whole.pop(name, Narrow())
        if name in self._since:
            joined_rows.add(_number(name, self._since.pop(name)))
        return joined_rows

    def rows(self, name: str) -> pl.DataFrame:
        """Return ``narrow`` as one frame; one without columns if no partial has the table."""
        return self.narrow(name).frame()

    def held(self) -> list[str]:
        """Return the names of the tables that are kept row by row."""
        return sorted({*self._whole, *self._since})


#: The part of each partial's ``about`` that is needed later.
_KEPT: Final = (
    "origin", "present", "cpu_only", "on_gpu", "ranges", "domains", "calls", "missing_of", "compiling",
)  # fmt: skip


@cache
def _once(words: tuple[str, ...]) -> tuple[str, ...]:
    return words


def _share(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words as a tuple that all partials with equal words share."""
    return _once(tuple(words))


def _number(table: str, parts: list[tuple[pl.DataFrame, int, int]]) -> pl.DataFrame:
    """Join parts, with the process and clock numbers of the whole job."""
    frame = pl.concat((part for part, *_ in parts), rechunk=True)
    lengths = [len(part) for part, *_ in parts]
    moves = {"process": 1, "parent": 1, "clock_domain": 2}
    return frame.with_columns(
        *(
            (pl.col(column) + pl.Series(np.repeat([part[move] for part in parts], lengths))).cast(
                frame.schema[column]
            )
            for column, move in moves.items()
            if column in frame.columns
        ),
        *(pl.col(name).cast(pl.Categorical) for name in _ALIKE.get(table, ())),
    )


def _top(frame: pl.DataFrame | None, column: str) -> int:
    """Return the highest number in a column; -1 without any."""
    top: Any = None if frame is None else frame[column].max()
    return -1 if top is None else int(top)
