"""The difference of two profiles: what explains the change of the step, op by op."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import polars as pl

from opscope.core.analysis.diff import about, rankwise, tables
from opscope.core.analysis.diff.light import reduce_light
from opscope.core.analysis.diff.reduced import STEP, STEPS, TOTALS, WHOLE, Ending, Reduced, begin
from opscope.core.analysis.diff.tables import Difference
from opscope.core.analysis.host import input_waits, light
from opscope.core.once import once
from opscope.core.tables.columns import hand_back

from .host import Host
from .steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from . import Profile
    from .base import Where

#: The tables of a difference.
BY: Final = (
    "part", "cause", "op", "kernel", "run", "step", "rank", "rank_step", "op_total", "kernel_total",
)  # fmt: skip


class Diff(Steps, Host):
    """The difference from another profile."""

    def diff(self, other: Profile, by: str = "part", **where: Unpack[Where]) -> pl.DataFrame:
        """What changed from this run (a) to another (b): times are means per step, in ns.

        ``by``: ``step`` is the whole step; ``part`` what the
        process did in it; ``cause`` each part by op: parts and causes add up to the step exactly. ``op`` is
        the device time of each op (without a GPU, its own time), wherever else something ran; ``kernel`` the
        ops that other kernels work for, on the same inputs; ``run`` how the runs themselves differ. Of jobs
        of several ranks ``rank`` is the step of each, and ``rank_step`` each step of each. Of merged jobs,
        whose ops are not known step by step, ``op_total`` and ``kernel_total`` are of all that was
        recorded. Steps
        of warm-up are left out; profiles without steps are compared by the iterations that repeat, else
        whole. What is selected is selected in both. Raises ValueError for another ``by``.
        """
        if by not in BY:
            raise ValueError(f"by must be {', '.join(BY)}, not {by!r}")
        return table(difference_of(self.select(**where), other.select(**where)), by)

    def _reducing(self, how: str = STEPS) -> Ending:
        """Return what ends reducing the profile, once this has taken from it what that needs."""
        if light.is_light(self.trace):
            found = reduce_light(self.trace, how)
            return lambda: found
        if how == TOTALS:
            steps, totals = self._steps_reduced, self._totals_of_all
            return lambda: replace(steps(), totals=totals, has_ops=False)
        return self._whole_reduced if how == WHOLE else self._steps_reduced

    def _begun(self) -> Self:
        """Return the profile with what reducing it begins with: its attribution, its steps or iterations."""
        if not light.is_light(self.trace) and not self._has_steps:
            _ = self._iterated
        return self

    @once
    def _steps_reduced(self) -> Ending:
        part = self if self._has_steps else self._iterated[0]
        return part._begin_reducing(part is not self, False)

    @once
    def _whole_reduced(self) -> Ending:
        return self._begin_reducing(False, True)

    def _begin_reducing(self, inferred: bool, whole: bool) -> Ending:
        waited = input_waits.input_waits(*self._read, self._waits)
        unit, ending = begin(
            self._ops,
            self._found_steps,
            lambda: self._exchanged,
            (self._waits, waited),
            inferred=inferred,
            whole=whole,
        )
        ranked = pl.DataFrame(schema=rankwise.RANKED)
        if unit == STEP and len(self.trace["processes"]) > 1:
            ranked = rankwise.ranked(self._step_table, self._exchanged_in)

        @cache
        def ended() -> Reduced:
            found = replace(ending(), ranked=ranked)
            hand_back()
            return found

        return ended


def difference_of(a: Diff, b: Diff) -> Difference:
    """Return the difference of two profiles; whole runs are compared if only one of them has steps."""
    return tables.compare(a._reducing, b._reducing)


def table(difference: Difference, by: str) -> pl.DataFrame:
    """Return one of the tables ``BY``."""
    if by == "run":
        return about.runs(difference.a.about, difference.b.about)
    frame: pl.DataFrame = getattr(difference, by if by == "step" else f"{by}s")
    return frame


def give_up() -> None:
    """Free the memory of a profile that nobody uses: it refers to itself, so only the collector finds it."""
    gc.collect()
    hand_back()
