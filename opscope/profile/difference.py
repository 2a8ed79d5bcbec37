"""The difference of two profiles: what explains the change of the step, op by op."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.diff import about, rankwise, tables, whole_job
from opscope.core.analysis.diff.light import reduce_light
from opscope.core.analysis.diff.reduced import STEP, STEPS, TOTALS, WHOLE, Ending, Reduced, begin
from opscope.core.analysis.diff.tables import Difference
from opscope.core.analysis.host import light
from opscope.core.analysis.host.input_waits import input_waits, loader_waits
from opscope.core.analysis.ops.exchanges import exchange_pieces, exchanges
from opscope.core.analysis.ops.lost_kernels import idle_unknown, not_comparable
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.steps.detected_iterations import iterated
from opscope.core.analysis.steps.step_times import has_steps, step_bounds
from opscope.core.analysis.steps.steps import table_of_steps
from opscope.core.tables.columns import hand_back

if TYPE_CHECKING:
    from .profile import Profile

#: The tables of a difference.
BY: Final = (
    "part", "cause", "op_sum", "op", "kernel", "run", "step", "rank", "rank_step", "op_total", "kernel_total",
)  # fmt: skip


def totals_of_all(profile: Answers) -> whole_job.Totals:
    """The total time of ops and kernels."""
    time = int(profile.summary()["device_time"][0] or 0)
    ops = profile.ask("op_totals", categories=True)
    return whole_job.totals(ops, profile.kernel_totals(), time)


def reducing(profile: Answers, how: str | None = None) -> Ending:
    """Return a function that finishes the reduction without reading more of the profile."""
    how = STEPS if how is None else how
    if light.is_light(profile.trace):
        reduced = reduce_light(profile.trace, how)
        return lambda: reduced
    if how == TOTALS:
        steps, totals = profile.of(steps_reduced), profile.of(totals_of_all)
        return lambda: replace(steps(), totals=totals, has_ops=False)
    return profile.of(whole_reduced if how == WHOLE else steps_reduced)


def prepare(profile: Profile) -> Profile:
    """Compute what reducing needs first, the attribution and steps or iterations; return the profile."""
    if not light.is_light(profile.trace) and not profile.of(has_steps):
        profile.of(iterated)
    return profile


def steps_reduced(profile: Answers) -> Ending:
    """Return a function that reduces the profile by steps, or by the iterations that repeat."""
    part = profile if profile.of(has_steps) else profile.of(iterated)[0]
    return _begin(part, part is not profile, False)


def whole_reduced(profile: Answers) -> Ending:
    """Return a function that reduces the profile as one whole run."""
    return _begin(profile, False, True)


def _begin(profile: Answers, inferred: bool, as_run: bool) -> Ending:
    read, waits = profile.attribution, profile.of(loader_waits)
    unit, ending = begin(
        profile.of(op_index),
        profile.of(step_bounds),
        lambda: profile.of(exchanges),
        (waits, input_waits(read.trace, read.meaning, waits)),
        inferred=inferred,
        whole=as_run,
    )
    ranked = pl.DataFrame(schema=rankwise.RANKED)
    if unit == STEP and len(profile.trace["processes"]) > 1:
        rows = rankwise.ranked(profile.of(table_of_steps), profile.of(exchange_pieces))
        # other processes, such as a loader's workers, have no steps
        ranked = rows if rows["process"].n_unique() > 1 else ranked

    @cache
    def ended() -> Reduced:
        # where launches or ops are missing, an op without time may have run as well
        records = profile.ask("lost_kernels").select(pl.col("lost_launches", "lost_ops") > 0)
        lacks = profile.of(not_comparable)
        lost = lacks is not None or profile.of(idle_unknown) is not None
        lost |= bool(records.select(pl.any_horizontal(pl.all()).any()).item())
        reduced = replace(ending(), ranked=ranked, lacks=lacks, lost=lost)
        hand_back()
        return reduced

    return ended


def difference_of(a: Profile, b: Profile) -> Difference:
    """Return the difference of two profiles; whole runs are compared if only one of them has steps."""
    return tables.compare(a._reducing, b._reducing)


def table(difference: Difference, by: str) -> pl.DataFrame:
    """Return one of the tables ``BY``."""
    if by == "run":
        return about.runs(difference.a.about, difference.b.about)
    frame: pl.DataFrame = getattr(difference, by if by == "step" else f"{by}s")
    return frame


def give_up() -> None:
    """Free the memory of unused profiles; their references are circular, so only the garbage collector can
    free them."""
    gc.collect()
    hand_back()
