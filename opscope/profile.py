"""Profile: what ``opscope.load`` returns; its methods ask the analysis and return Polars frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from typing import TypeAlias

import polars as pl

from opscope.core.analysis import distributed, totals
from opscope.core.analysis.coverage import missing_costs
from opscope.core.analysis.kernels import kernels_frame, memops_frame
from opscope.core.analysis.ops import Ops, ops_frame
from opscope.core.analysis.summary import summary
from opscope.core.attribute import Attribution, attribute
from opscope.core.interpret import ROLE
from opscope.core.trace import Trace

Path: TypeAlias = "str | PathLike[str]"

#: Columns of ``Profile.ops`` that only the totals need.
_INTERNAL = ("own_device_time", "own_kernels")


class Profile:
    """A trace, attributed. Every method's frame is worked out when first asked for, then kept."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def attribution(self) -> Attribution:
        """Which op each kernel and copy belongs to."""
        return attribute(self.trace)

    @cached_property
    def _ops(self) -> Ops:
        return Ops(self.attribution)

    @cached_property
    def _ops_frame(self) -> pl.DataFrame:
        return ops_frame(self._ops)

    @cached_property
    def _kernels_frame(self) -> pl.DataFrame:
        return kernels_frame(self._ops)

    @cached_property
    def _memops_frame(self) -> pl.DataFrame:
        return memops_frame(self._ops)

    @property
    def cpu_only(self) -> bool:
        """Whether the program ran without a GPU, so that the CPU is the device."""
        return not (self.trace.has("kernels") or self.trace.origin.get("gpu"))

    def ops(self) -> pl.DataFrame:
        """One row per op instance; see ``core.analysis.ops.ops_frame``."""
        return self._ops_frame.drop(_INTERNAL)

    def kernels(self) -> pl.DataFrame:
        """One row per kernel execution; see ``core.analysis.kernels.kernels_frame``."""
        return self._kernels_frame

    def memops(self) -> pl.DataFrame:
        """One row per copy or set."""
        return self._memops_frame

    def summary(self) -> pl.DataFrame:
        """One row; see ``core.analysis.summary.summary``."""
        steps = int((self.attribution.meaning.role == ROLE["step"]).sum())
        ops = self._ops_frame if self.cpu_only else None
        return summary(self.trace, self.kernels(), self.memops(), ops, steps)

    def op_totals(self) -> pl.DataFrame:
        """One row per distinct op, by device time; see ``core.analysis.totals.op_totals``."""
        return totals.op_totals(self._ops_frame)

    def kernel_totals(self) -> pl.DataFrame:
        """One row per kernel name, by time."""
        return totals.kernel_totals(self.kernels())

    def unattributed(self) -> pl.DataFrame:
        """One row per reason for which kernels have no op."""
        return totals.unattributed(self.kernels())

    def missing_costs(self) -> pl.DataFrame:
        """The ops whose FLOPs are not known, by device time: op, op_type, calls, time, reason."""
        return missing_costs(self._ops, self._ops_frame, cpu_only=self.cpu_only)

    def communication(self) -> pl.DataFrame:
        """One row per process: communication's share of the time, and how much of it is hidden."""
        return distributed.communication(self.trace)

    def notes(self) -> pl.DataFrame:
        """What the reader of the trace had to tell: severity, what, how_many."""
        return self.trace["notes"]

    def save(self, path: Path, *, force: bool = False) -> None:
        """Write the profile as a directory ``NAME.opscope``. Raises FileExistsError unless ``force``."""
        from opscope.readers import opscope_profile

        opscope_profile.write(path, self.trace, force=force)


def load(path: Path | Sequence[Path]) -> Profile:
    """Open a trace or profile of any format, recognised by content; a list is one job's files.

    Raises opscope.readers.errors.BadInput, naming the file and what is wrong with it.
    """
    from opscope import readers

    return Profile(readers.open(path))
