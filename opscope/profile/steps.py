"""The steps of a Profile: what each took and why some took longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.ranks import stragglers
from opscope.core.analysis.steps import slow_steps, step_trace, steps
from opscope.core.analysis.steps.iterations import iterations as iteration_table
from opscope.core.analysis.steps.step_phases import Phases
from opscope.core.once import once

from .base import selectable
from .job import Job
from .work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Steps(Job, Work):
    """Steps, their parts, and the ranks that are late."""

    @once
    def _phases(self) -> Phases:
        return Phases(self._ops, self._found_steps)

    @once
    def _step_table(self) -> pl.DataFrame:
        return steps.step_table(self._ops, lambda: self._exchanged, self._phases)

    @selectable
    def steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What each step of each process took: by what the process did, and by phase.

        The parts, ``communication_part`` to ``other_part``, add up to ``time`` exactly: each is the time of
        its kind in which nothing of an earlier column happened. A null part counts in the later ones:
        ``unknown`` says why it is null. The phases and ``outside_phases`` add up to ``time`` too; they are
        null if nothing shows phases. A trace without steps has one row per process, with a null ``step``.
        """
        return self._given("steps", lambda: self._step_table.drop("seen"))

    @selectable
    def iterations(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The iterations of each process: what was in each, which were warm-up, and which are stable.

        They are the steps that the program marks; else what ``key`` ends (``iterations(key="aten::mean")``);
        else what repeats in the sequence of ops, or of kernels. ``certainty`` says how sure that is; only
        with ``is_step`` do other frames take them as steps. A process without any has one row and a reason.
        ``stable`` marks the longest range without warm-up, slow iterations and other work: it is what to
        compare and to select (``profile.op_totals(steps=(first, last))``).
        """
        return self._given("iterations", self._made_iterations)

    def _made_iterations(self) -> pl.DataFrame:
        part, is_step, doubts = self._iterated
        return iteration_table(part._ops, part._found_steps, is_step, doubts, not self.cpu_only)

    @selectable
    def step_summary(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What steps usually take, by process: the whole step, each part and each phase.

        Steps that a capture's window does not hold whole are left out, unless there are no others.
        """
        return self._given("step_summary", lambda: steps.step_summary(self._step_table))

    @selectable
    def step_phases(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The phases of each step, with the device time of what was launched in each.

        The times of a step's five rows add up to the step. Device times are summed durations: they may be
        longer than the step where kernels run at once.
        """
        return self._given(
            "step_phases",
            lambda: steps.phase_table(self._step_table, self._phases, self._ops.on_device),
        )

    @selectable
    def slow_steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The slow steps, and what they had more of than the median of the process's other steps.

        A step is slow if its modified z-score is above 3.5 and it is 5 % longer than the median; fewer than
        five steps are not judged.
        """
        return self._given(
            "slow_steps",
            lambda: slow_steps.slow_steps(self._ops, self._step_table, lambda: self._exchanged),
        )

    @selectable
    def step_trace(self, **where: Unpack[Where]) -> pl.DataFrame:
        """MindSpore's step trace: each step as iteration interval, forward and backward, and tail.

        The three add up to ``time``, which runs from the end of the step before.
        """
        return self._given(
            "step_trace",
            lambda: step_trace.step_trace(self._ops, self._found_steps, self._phases),
        )

    @selectable
    def stragglers(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Which ranks enter collectives last, how often, and how long the others wait for them."""
        return self._given(
            "stragglers", lambda: stragglers.stragglers(self.trace, self._exchanged_in)
        )

    @selectable
    def collective_waits(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time in collectives as waiting and transfer, by kind and group; all ranks added up."""
        return self._given(
            "collective_waits", lambda: stragglers.collective_waits(self._exchanged_in)
        )

    @selectable
    def step_imbalance(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How the work of each rank in a step compares with that of the others in the same step."""
        return self._given(
            "step_imbalance",
            lambda: stragglers.step_imbalance(self._found_steps, self._exchanged_in),
        )
