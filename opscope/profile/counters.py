"""The hardware counters of a Profile: per kernel, added up, and as a roofline beside the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from opscope.core.analysis.roofline.counter_names import as_hta
from opscope.core.analysis.roofline.counter_roofline import counter_roofline
from opscope.core.analysis.roofline.counter_work import WHY, WORK, counted_work
from opscope.core.analysis.roofline.counters import (
    Executions,
    counter_totals,
    executions,
    measured_kernels,
)
from opscope.core.once import once
from opscope.core.tables.columns import as_text

from .base import selectable
from .work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Counters(Work):
    """Hardware counters."""

    @once
    def _counted(self) -> Executions:
        return executions(self._ops)

    @selectable
    def counters(
        self, *, names: Literal["opscope", "hta"] = "opscope", **where: Unpack[Where]
    ) -> pl.DataFrame:
        """Every kernel whose hardware counters were measured, with the ops around its launch.

        A column for each counter, named as the counter, follows the columns below; it is null for kernels
        of which it was not measured. With ``names="hta"`` the columns are those of Holistic Trace Analysis:
        ``op_stack`` is a list, times are in µs. Raises ValueError for other ``names``.
        """
        if names not in ("opscope", "hta"):
            raise ValueError(f"unknown names {names!r}; choose opscope or hta")
        found = self._given("counters", lambda: measured_kernels(self._ops, self._counted))
        return found if names == "opscope" else as_hta(found)

    @selectable
    def counter_totals(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The values of each counter by kernel name and innermost op."""
        return self._given("counter_totals", lambda: counter_totals(self._counted, self.counters()))

    @selectable
    def counter_work(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What counters say of each kernel's work: FLOPs by precision, Tensor Cores, bytes of memory.

        Only counters whose meaning is known are used. A number that they do not give is null, with a reason.
        """
        return self._given("counter_work", self._counter_work)

    def _counter_work(self) -> pl.DataFrame:
        about = self.counters().select(
            "process", "device", "stream", "start", "duration", "name", "op_id",
            pl.col("bottom_op").alias("op"),
        )  # fmt: skip
        work = counted_work(self._counted.values, len(self._counted))
        return about.with_columns(work.select(*WORK, *WHY).get_columns())

    @selectable
    def counter_roofline(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The measured roofline beside the model's, by op and inputs, with the differences.

        Both sides are of the same calls. A side that is not known of all of them is null, with a reason.
        """
        return as_text(
            self._frame(
                "counter_roofline",
                lambda: counter_roofline(self._ops, self._counted, self.counters(), self.device[0]),
            )
        )
