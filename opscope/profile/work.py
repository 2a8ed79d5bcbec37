"""The ops and kernels of a Profile, and their totals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.diff import whole_job
from opscope.core.analysis.ops import totals
from opscope.core.analysis.ops.kernels import Told, kernels_frame, memops_frame
from opscope.core.analysis.ops.op_totals import op_totals, pieces_of_ops
from opscope.core.analysis.summary.by_range import range_sums, range_totals
from opscope.core.analysis.summary.gaps import gap_sums, gap_sums_on_cpu, gaps
from opscope.core.analysis.summary.grouped import BY, kind_totals, totals_by
from opscope.core.analysis.summary.kinds import op_kinds
from opscope.core.analysis.summary.regions import compiled_regions, region_sums
from opscope.core.analysis.summary.summary import compiling_time, summary, unattributed_on_cpu
from opscope.core.once import once
from opscope.core.tables.columns import distinct_values, renamed

from .base import Base, selectable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Work(Base):
    """The ops, kernels and copies, and what they add up to."""

    @selectable
    def ops(self, *, categories: bool = False, **where: Unpack[Where]) -> pl.DataFrame:
        """Every op instance, with its times, layer, source line, shapes and cost.

        Only one op of each nest (``canonical``) has FLOPs and bytes, so that columns can be added up.
        """
        return self._ops_frame if categories else self._out("ops", self._ops_frame)

    @selectable
    def kernels(self, *, categories: bool = False, **where: Unpack[Where]) -> pl.DataFrame:
        """Every kernel execution, with the op that launched it; ``reason`` says why a kernel has no op.

        An op's FLOPs and bytes are divided among its kernels by duration, so that columns can be added up.
        """
        frame = self._cached("kernels")
        return frame if categories else self._out("kernels", frame)

    def _make_kernels(self) -> pl.DataFrame:
        return kernels_frame(self._ops, self._executed)

    def _told_of(self, table: str) -> Told:
        """Tell the op and the costs of any rows of ``kernels`` or ``memops``, without the frames of all."""
        costs = self._executed if table == "kernels" and "_executed" in vars(self) else None
        return Told(self._ops, table, costs)

    @selectable
    def memops(self, *, categories: bool = False, **where: Unpack[Where]) -> pl.DataFrame:
        """Every copy and set, with the op that launched it; ``reason`` says why a copy or set has no op."""
        frame = self._cached("memops")
        return frame if categories else self._out("memops", frame)

    def _make_memops(self) -> pl.DataFrame:
        return memops_frame(self._ops)

    @selectable
    def summary(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The whole profile in one row.

        The columns ``device_attributed_time`` and ``device_unattributed_time`` add up to ``device_time``
        exactly; likewise ``attributed_time`` and ``unattributed_time`` to ``kernel_time``. Without a GPU the
        device is the CPU: its time is the ops' self time plus the threads' time inside steps but outside any
        op. If only a window of the run was captured, kernel times are those of the window.
        """
        return self._cached("summary")

    def _make_summary(self) -> pl.DataFrame:
        ops = self._ops_frame if self.cpu_only else None
        return summary(self.attribution.trace, self._executed, self._executed_memops, ops)

    @selectable
    def op_totals(self, *, categories: bool = False, **where: Unpack[Where]) -> pl.DataFrame:
        """Distinct calls of ops, the most device time first.

        The time of nested ops is counted once. Calls outside the window in which kernels were captured are
        separate rows, with null as device time and the reason.
        """
        frame = self._cached("op_totals")
        return frame if categories else self._out("op_totals", frame)

    def op_columns(self, *columns: str) -> pl.DataFrame:
        """Columns of ``op_totals()`` in no order, with text as categories; of a saved profile only these are
        read, and not kept."""
        return self._passing_sums(columns).select(columns)

    def _make_op_totals(self) -> pl.DataFrame:
        if self.selected is None and not ("op_sums" in self._frames or "op_sums" in self._stored):
            return pl.concat(pieces_of_ops(self._ops))
        return op_totals(self._op_sums)

    @property
    def _op_sums(self) -> pl.DataFrame:
        return self._cached("op_sums")

    def _make_op_sums(self) -> pl.DataFrame:
        return totals.op_sums(self._ops)

    def _passing_sums(self, columns: Collection[str]) -> pl.DataFrame:
        """``_summed``, at least ``columns``, given up after their use: all take 0.12 GB of a million ops with
        texts of their own."""
        if "op_totals" in self._frames or "op_totals" in self._stored:
            return self._passing("op_totals", columns)
        return self._passing("op_sums", columns)

    @property
    def _summed(self) -> pl.DataFrame:
        """The rows of ``op_totals`` for further sums; sorted only if ``op_totals`` was computed or stored."""
        if "op_totals" in self._frames or "op_totals" in self._stored:
            return self._cached("op_totals")
        return self._op_sums

    @selectable
    def kinds(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Device time by kind of work (matrix products, attention …), op and direction.

        If an op does not give its kind, the names of its kernels do. The times add up to the device time.
        """
        return self._told("kinds")

    def _make_kinds(self) -> pl.DataFrame:
        return self._kinds_of(self._summed)

    def _kinds_of(self, sums: pl.DataFrame) -> pl.DataFrame:
        return op_kinds(self._ops, sums, self._cached("unattributed"))

    @selectable
    def totals_by(
        self, by: str, *, layers: Mapping[str, str] | None = None, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """Device time by ``kind``, ``op``, ``layer``, ``source`` or ``dtype``; time without an op by reason.

        A row that adds up several inputs, layers, source lines or ops gives their number and shows the one
        with most of the time. ``layers`` maps layers to the names under which they are added up. Raises
        ValueError for any other ``by``.
        """
        if by not in BY:
            raise ValueError(f"unknown by {by!r}; choose one of {', '.join(BY)}")
        if by == "kind":
            return kind_totals(self._cached("kinds"))
        summed = self._summed
        if layers:
            summed = summed.with_columns(renamed(summed["layer"], layers))
        return totals_by(summed, self._cached("unattributed"), self._cached("kinds"), by)

    def distinct(self, column: str) -> list[str]:
        """Return the distinct texts of a column of ``op_totals()`` (``layer``, ``direction`` …), sorted."""
        return sorted(distinct_values(self._summed[column]).drop_nulls().cast(pl.String))

    @selectable
    def kernel_totals(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Kernels added up by name, the most time first."""
        return self._told("kernel_totals")

    def _make_kernel_totals(self) -> pl.DataFrame:
        return totals.kernel_totals(totals.kernel_sums(self._executed))

    @selectable
    def unattributed(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Device time without an op: one row per reason, from a closed list, by time."""
        return self._told("unattributed")

    def _make_unattributed(self) -> pl.DataFrame:
        if self.cpu_only:
            trace = self.attribution.trace  # with steps that were inferred
            compiling = compiling_time(trace, lambda: self._ops_frame)
            return unattributed_on_cpu(self._cached("summary"), compiling)
        whole = int(self._cached("summary")["device_time"].item() or 0)
        return totals.unattributed(
            totals.unattributed_sums(self._executed, self._executed_memops), whole
        )

    @selectable
    def gaps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Device time without an op, by reason as in ``unattributed()``, user range, phase and thread state.

        Without a GPU it is the threads' time inside steps but outside any op.
        """
        return self._told("gaps")

    def _make_gaps(self) -> pl.DataFrame:
        sums = gap_sums_on_cpu(self._ops, self._ops_frame) if self.cpu_only else gap_sums(self._ops)
        return gaps(sums, self._cached("summary")["device_time"].item() or 0)

    @selectable
    def range_totals(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The user's ranges by device time; work counts for the innermost range that it ran in."""
        return self._told("range_totals")

    def _make_range_totals(self) -> pl.DataFrame:
        frame = self._ops_frame if self.cpu_only else None
        return range_totals(range_sums(self._ops, self._executed, frame))

    @selectable
    def compiled(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The regions that torch.compile made: the kernels that ran in each, and the ops that they fuse."""
        return self._given("compiled", lambda: compiled_regions(region_sums(self._ops)))

    @selectable
    def own_costs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """opscope's own cost while it recorded, by process and part."""
        return self.trace["own_costs"]

    @once
    def _totals_of_all(self) -> whole_job.Totals:
        time = int(self.summary()["device_time"][0] or 0)
        return whole_job.totals(self._cached("op_totals"), self.kernel_totals(), time)
