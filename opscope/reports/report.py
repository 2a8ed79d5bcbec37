"""What a report is: one record, from which terminal, files, JSON, help and documentation derive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opscope.frames import Frame

from .layout import Column, Table

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


@dataclass(frozen=True, slots=True)
class View:
    """How much of a report is shown: the first ``top`` rows (None: all).

    ``first`` is the first look, where nobody chose reports; ``enough`` then ends a table where its rows
    make up nearly all of the time.
    """

    top: int | None = 20
    first: bool = False
    enough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report. A module of ``reports/catalogue`` defines one as ``REPORT``; nothing else lists it."""

    #: Its name: for ``--reports``, the key in JSON, the end of a file's name, and the module's.
    name: str
    #: Its place among the reports: the lowest first. The reports in the catalogue are ten apart.
    order: int
    #: The heading of its table.
    title: str
    #: Its rows and columns, with units and meanings: one of ``frames.FRAMES``, or a Frame of its own.
    holds: Frame
    #: The frame, with exactly these columns.
    frame: Callable[[Profile], pl.DataFrame]
    #: What the table says where it has no rows.
    empty: str
    #: Columns that the terminal shows, in this order; none named: all.
    shown: Sequence[str] = ()
    #: How columns are shown whose unit alone does not say it.
    forms: Sequence[Column] = ()
    #: Makes the terminal's table where the frame's rows and columns are not enough.
    table: Callable[[Report, Profile, View], Table] | None = None
    #: Whether ``opscope report FILE`` shows it.
    first: bool = False
    #: Whether ``--json`` and ``--formats`` write it where no reports are named.
    written: bool = True
    #: Whether it is one row: an object in JSON, not a list.
    single: bool = False
    #: The word of ``--by`` for which it is the answer.
    by: str | None = None
    #: The place of that word among the others, where it is not the report's.
    by_order: int | None = None
    #: Whether its rows exist only where a GPU was used.
    gpu_only: bool = False
    #: Whether it needs none of what a lean reading leaves out (``opscope.load``), which takes less time.
    lean: bool = False
    #: Other names that people know it by.
    aliases: Sequence[str] = ()
