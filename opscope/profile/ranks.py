"""Many ranks: why some are late, what is missing, which are unlike the others, what each sent to each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.ranks import (
    collective_ends,
    collective_faults,
    collective_rates,
    distributed,
    late_causes,
    rank_outliers,
    rank_pairs,
    slowest_ranks,
)
from opscope.core.analysis.ranks.arrivals import arrivals
from opscope.core.analysis.ranks.stragglers import work_by_step
from opscope.core.analysis.steps import step_times
from opscope.core.job.exchanges import called, communicating
from opscope.core.job.numbering import matched
from opscope.core.once import once

from .base import selectable
from .steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Ranks(Steps):
    """The ranks of a job beside each other."""

    @once
    def _ranks(self) -> pl.DataFrame:
        """Process, rank, and ``until``, when the process's recording ended."""
        ends = self.spans.select("process", pl.col("end").alias("until"))
        ranks = self.trace["processes"].select("process", "rank").unique("process", keep="first")
        return ranks.join(ends, on="process", how="full", coalesce=True)

    @once
    def _rank_names(self) -> pl.DataFrame:
        return self._ranks.select("process", "rank")

    @once
    def _arrived(self) -> pl.DataFrame:
        did = step_times.happened(self._ops, lambda: self._exchanged)
        return arrivals(self._exchanged, did)

    def _arrived_in(self) -> Iterator[pl.DataFrame]:
        yield self._arrived

    @once
    def _calls_made(self) -> pl.DataFrame:
        return called(self.attribution, self._exchanged)

    @once
    def _called(self) -> pl.DataFrame:
        return matched(self._calls_made, timed.one_clock(self.trace))

    def _called_in(self) -> Iterator[pl.DataFrame]:
        yield self._called

    @once
    def _kernel_speeds(self) -> pl.DataFrame:
        return rank_outliers.kernel_speeds(self._own_kernels)

    @once
    def _medians_of_samples(self) -> pl.DataFrame:
        return rank_outliers.sampled(self.trace["samples"])

    @selectable
    def late_causes(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Why ranks enter collectives last: local compute, input, launch, or an earlier wait.

        A rank that came last is compared with the one that came first, over the time since both left the
        group's collective before; what it did longest beyond the other is the cause.
        """
        return self._given(
            "late_causes", lambda: late_causes.late_causes(self._arrived_in, self._rank_names)
        )

    @selectable
    def slowest_ranks(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The rank with most work in each step, and how far apart the ranks' work was."""
        return self._given(
            "slowest_ranks",
            lambda: slowest_ranks.slowest_ranks(
                work_by_step(self._found_steps, self._exchanged_in)
            ),
        )

    @selectable
    def collective_faults(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Collectives that some ranks never entered, or entered with another kind, size or dtype.

        Only ranks that are in the profile are missed. Where collectives cannot be judged, a row without a
        ``fault`` has the ``reason``: a profile without rows has no fault among its collectives.
        """
        return self._given(
            "collective_faults",
            lambda: collective_faults.collective_faults(
                self._called_in, self._ranks, self._exchanged_in
            ),
        )

    @selectable
    def last_collectives(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The last collective that each rank called in each group, whether it ended, and for whom it waits.

        In a hang the ranks that are behind are those that the others wait for.
        """
        return self._given(
            "last_collectives",
            lambda: collective_faults.last_collectives(self._called_in, self._ranks),
        )

    @selectable
    def collective_bandwidth(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bandwidth of collectives by group and size, without the waiting of ranks for each other.

        ``place`` says whether the group lies within a machine.
        """
        return self._given("collective_bandwidth", self._made_bandwidth)

    def _made_bandwidth(self) -> pl.DataFrame:
        on = distributed.machine_errors(self.trace).select("process", "machine")
        return collective_rates.collective_rates(self._exchanged_in, on)

    @selectable
    def rank_outliers(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Ranks that are unlike the others, by median and median absolute deviation.

        Compared are the times of equal kernels (name, grid, block), and the clocks, temperatures and power
        that were sampled. Fewer than four ranks are not judged.
        """
        return self._given(
            "rank_outliers",
            lambda: rank_outliers.rank_outliers(
                self._kernel_speeds, self._medians_of_samples, self._rank_names
            ),
        )

    @once
    def _own_kernels(self) -> pl.DataFrame:
        """The kernels that are no collective's: those take as long as the rank waits."""
        talks = communicating(self.attribution)
        columns = ["process", "device", "name", "grid", "block", "start", "end"]
        return self.trace["kernels"].select(columns).filter(pl.Series(~talks, dtype=pl.Boolean))

    @selectable
    def rank_pairs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How much each rank sent to each other: by the splits of all-to-alls, and by messages."""
        return self._given("rank_pairs", lambda: rank_pairs.rank_pairs(self._moved))

    @selectable
    def rank_loads(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What each rank sent and received in all-to-alls and messages: uneven where its experts are."""
        return self._given("rank_loads", lambda: rank_pairs.rank_loads(self.rank_pairs()))

    @once
    def _moved(self) -> pl.DataFrame:
        return rank_pairs.moved(self.attribution, self._exchanged, self._rank_names)

    @selectable
    def collective_ends(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Collectives that ranks do not leave together, beyond what their clocks explain."""
        return self._given(
            "collective_ends",
            lambda: collective_ends.collective_ends(
                self._exchanged_in, distributed.machine_errors(self.trace), self._rank_names
            ),
        )
