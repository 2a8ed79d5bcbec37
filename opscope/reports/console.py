"""Reports as tables for a terminal: those that were chosen, or a first look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import tables as made_of
from .layout import Column, Table
from .next_steps import next_steps
from .registry import reports
from .report import View

if TYPE_CHECKING:
    from opscope.profile import Profile


def tables(profile: Profile, names: Iterable[str], top: int | None = 20) -> list[Table]:
    """The named reports as tables of at most ``top`` rows (None: all)."""
    return [made_of.table(reports()[name], profile, View(top)) for name in names]


def first_screen(profile: Profile, top: int | None = 20, enough: bool = True) -> list[Table]:
    """The tables of a first look, of the ops what makes up nearly all of the time (``enough``), and what
    to ask next."""
    profile.kinds()  # the ops' sums before the kernels are there: at their sides they take more memory
    view = View(top, first=True, enough=enough)
    shown = [made_of.table(one, profile, view) for one in reports().values() if one.first]
    steps = next_steps(profile)
    return [*shown, *([Table("Next", [Column("what", "")], (), steps)] if steps else [])]
