"""The record of a report, from which terminal, files, JSON, help and documentation are made."""

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
    """How much of a report to show: the first ``top`` rows (None: all).

    ``first``: it is part of the first screen, shown if the user chose no reports; ``enough`` then ends a
    table once its rows make up nearly all of the time.
    """

    top: int | None = 20
    first: bool = False
    enough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report. A module of ``reports/catalogue`` defines it as ``REPORT``; no other place lists it."""

    #: Its name: used by ``--reports``, as key in JSON, in the names of files, and as name of the module.
    name: str
    #: Its position in the output: the lowest first. The catalogue's numbers are ten apart.
    order: int
    #: The heading of its table.
    title: str
    #: Its rows and columns, with units and meanings: one of ``frames.FRAMES``, or a new Frame.
    holds: Frame
    #: Returns the report's frame, with exactly the columns of ``holds``.
    frame: Callable[[Profile], pl.DataFrame]
    #: The text shown if the table has no rows.
    empty: str
    #: Columns that the terminal shows, in this order; if empty, all.
    shown: Sequence[str] = ()
    #: How to show the columns whose unit alone does not define it.
    forms: Sequence[Column] = ()
    #: Makes the terminal's table, if the frame's rows and columns alone are not enough.
    table: Callable[[Report, Profile, View], Table] | None = None
    #: Whether ``opscope report FILE`` shows it on the first screen.
    first: bool = False
    #: The report of the first screen whose place it takes where kernels were recorded and none has an op.
    without_ops: str | None = None
    #: Whether ``--json`` and ``--formats`` write it if no reports are named.
    written: bool = True
    #: Whether it has one row: an object in JSON, not a list.
    single: bool = False
    #: The word of ``--by`` that chooses it.
    by: str | None = None
    #: The position of that word among the others; None: the report's ``order``.
    by_order: int | None = None
    #: Whether it has rows only if a GPU was used.
    gpu_only: bool = False
    #: Whether a lean profile (``opscope.load``) has all that it needs; such a profile loads faster.
    lean: bool = False
    #: Other names that ``--reports`` accepts.
    aliases: Sequence[str] = ()
