"""The host of a Profile: its input pipeline and its processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.host import cpu_utilization, input_waits
from opscope.core.once import once
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.trace import Trace

from .base import selectable
from .work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Host(Work):
    """Data preparation and CPU utilization."""

    @once
    def _waits(self) -> pl.DataFrame:
        return input_waits.waits(self.attribution.trace, self.attribution.meaning)

    @selectable
    def input_waits(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How long each step waited for its input; ``input_bound`` if that is above 5 % of the step.

        A wait between two steps belongs to the later one, whose ``duration`` then begins with it. If no
        data loader was seen, nobody knows what a step waited for: null, with the reason.
        """
        return self._given("input_waits", lambda: input_waits.input_waits(*self._read, self._waits))

    @selectable
    def data_preparation(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The data loaders that the program waited for, the longest waits first; empty if none was seen."""
        return self._given("data_preparation", self._loaders)

    def _loaders(self) -> pl.DataFrame:
        return input_waits.data_preparation(*self._read, self._waits)

    @property
    def _read(self) -> tuple[Trace, Meaning]:
        return self.attribution.trace, self.attribution.meaning

    @selectable
    def cpu_utilization(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What the processors did while each process was sampled: the machine's, and those it used itself.

        Empty if nothing was sampled.
        """
        return self._given("cpu_utilization", lambda: cpu_utilization.cpu_utilization(self.trace))

    @selectable
    def cpu_samples(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The processors over time: each sample, with the time in which it holds."""
        return self._given("cpu_samples", lambda: cpu_utilization.cpu_samples(self.trace))

    @selectable
    def cpu_by_step(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What the processors did during each step, by the samples that hold in it.

        A step shorter than the time between two samples has the mean of the sample that it lies in.
        """
        return self._given("cpu_by_step", self._by_step)

    def _by_step(self) -> pl.DataFrame:
        return cpu_utilization.cpu_by_step(self.trace, input_waits.ended(*self._read))

    @selectable
    def cpu_by_op(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What the processors did while an op ran, for ops in which at least three samples fall.

        An op shorter than the time between two samples shares the sample with its neighbours.
        """
        return self._given("cpu_by_op", self._by_op)

    def _by_op(self) -> pl.DataFrame:
        sampled = len(self.trace["samples"]) > 0
        ops = self._ops_frame if sampled else pl.DataFrame(schema=cpu_utilization.OPS)
        return cpu_utilization.cpu_by_op(self.trace, ops)
