"""How near the work of a Profile comes to the device's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.ops.windows import captured_steps
from opscope.core.analysis.roofline.coverage import missing_costs, missing_sums
from opscope.core.analysis.roofline.efficiency import (
    group_efficiency,
    kernel_efficiency,
    op_efficiency,
    replays,
)
from opscope.core.analysis.roofline.engines import engine_layers, engine_runs
from opscope.core.analysis.roofline.utilization import step_utilization
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.attribution.specs import Specs
from opscope.core.once import once
from opscope.core.tables.columns import as_text

from .base import selectable
from .work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Costs(Work):
    """The roofline, the use of FLOPs, and engines."""

    @selectable
    def missing_costs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The ops whose FLOPs or bytes are not known, with the reason, by device time.

        The shares of ops without FLOPs add up to 1 − the summary's ``flops_share``. Kernels without a
        launch record are listed in addition.
        """
        return self._told("missing_costs")

    def _make_missing_costs(self) -> pl.DataFrame:
        sums, wholes = missing_sums(self._ops, self._executed, self._executed_memops)
        # without any launch recorded shares are of all device time
        launches = self.attribution.trace.has("calls")
        return missing_costs(sums, wholes["launched" if launches else "all"])

    @selectable
    def efficiency(self, *by: str, **where: Unpack[Where]) -> pl.DataFrame:
        """The roofline: how close ops come to the device's limits.

        Without ``by``: every execution of a canonical op. With ``op``, ``layer``, ``direction``, ``step``
        or ``range``, or several of these: sums over them. With ``kernel`` alone: sums per kernel name.
        Efficiencies are null if the device is not known.
        """
        found = self._efficiency
        if by == ("kernel",):
            kernels = self.kernels(categories=True)
            return as_text(kernel_efficiency(self._ops, kernels, found))
        return as_text(group_efficiency(found, *by) if by else found)

    @once
    def _efficiency(self) -> pl.DataFrame:
        return op_efficiency(
            self._ops, self._ops_frame, self.kernels(categories=True), self.device[0]
        )

    @selectable
    def utilization(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Model and hardware FLOPs utilization (MFU, HFU) of each step and process."""
        return self._given("utilization", self._made_utilization)

    def _made_utilization(self) -> pl.DataFrame:
        return step_utilization(
            # outside the window, the kernels that CUDA graphs replayed are not known
            captured_steps(self.trace, ended_steps(self.attribution.trace["ranges"])),
            self._ops_frame,
            self.device[0],
            recomputed=pl.Series(self._ops.recomputed(self._ops.rows)),
            kernels=None if self.cpu_only else self.kernels(categories=True),
            replays=replays(self._ops),
        )

    @property
    def _specs(self) -> pl.DataFrame:
        return Specs.of(self.attribution.trace, self.attribution.meaning).table

    @selectable
    def engine_layers(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The layers of TensorRT engines: times, precision, formats, tactic, origin and cost of each.

        Times that trtexec exported are means over many runs; else they are of the layer's kernels.
        """
        return self._given(
            "engine_layers",
            lambda: engine_layers(
                self._specs, self.kernels(categories=True), self._ops_frame, self._efficiency
            ),
        )

    @selectable
    def engine_runs(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How long runs of a TensorRT engine took: as trtexec recorded them, and as its summary states it."""
        return self._given("engine_runs", lambda: engine_runs(self._specs, self.trace["samples"]))
