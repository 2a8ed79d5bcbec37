"""What a detector is, and what it may answer: findings, nothing found, or that it cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import polars as pl

from opscope.core.analysis.critical.edits import Edit
from opscope.core.analysis.critical.scaled import Floats
from opscope.core.attribution.attribute import Attribution
from opscope.core.perf.devices.peaks import Device
from opscope.core.tables.trace import Trace

__all__ = ["EVIDENCE", "Answer", "Answers", "CannotTell", "Detector", "Edit", "Finding", "Floats"]

#: The columns that the rows of a finding's evidence may have: as in ``kernels()`` and ``ops()``, with
#: ``count`` for how many, ``time`` for their time (ns) and ``detail`` for what else there is to say.
EVIDENCE: Final = {
    "op_id": pl.Int64,
    "op": pl.String,
    "kernel": pl.String,
    "direction": pl.String,
    "layer": pl.String,
    "source": pl.String,
    "inputs": pl.String,
    "dtypes": pl.String,
    "process": pl.Int32,
    "device": pl.Int32,
    "step": pl.Int64,
    "count": pl.Int64,
    "time": pl.Int64,
    "detail": pl.String,
}


class Answers(Protocol):
    """What a detector may look at: the trace, and frames as ``opscope.profile.Profile`` returns them."""

    @property
    def trace(self) -> Trace:
        """The tables that the profile was made of."""

    @property
    def attribution(self) -> Attribution:
        """The call and the op to which each kernel, copy and set belongs."""

    @property
    def cpu_only(self) -> bool:
        """Whether the trace shows no use of a GPU, so that the CPU is the device."""

    @property
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits and None, or None and the reason why the limits are not known."""

    def ops(self, *, categories: bool = False) -> pl.DataFrame:
        """Every op. ``categories``: Categorical text, which takes less memory."""

    def memops(self, *, categories: bool = False) -> pl.DataFrame:
        """Every copy and set, with its op, in the order of the trace's table."""

    def kernels(self, *, categories: bool = False) -> pl.DataFrame:
        """Every kernel, with its op, in the order of the trace's table."""

    def op_totals(self, *, categories: bool = False) -> pl.DataFrame:
        """Distinct ops by device time. ``categories``: Categorical text, which takes less memory."""

    def op_columns(self, *columns: str) -> pl.DataFrame:
        """Columns of ``op_totals()`` alone, with Categorical text, in no order: less to keep."""

    def summary(self) -> pl.DataFrame:
        """The whole profile in one row."""

    def efficiency(self, *by: str) -> pl.DataFrame:
        """Attained rates against the roofline, by op, kernel, layer or step."""

    def totals_by(self, by: str) -> pl.DataFrame:
        """Time by op, layer, source, kind, direction, dtype and so on."""

    def short_kernels(self, below: int = ...) -> pl.DataFrame:
        """Short kernels by name."""

    def fusable_kernels(self, below: int = ...) -> pl.DataFrame:
        """Chains of short kernels."""

    def critical_totals(self, by: str = "kind") -> pl.DataFrame:
        """The critical path's time by kind, op, layer, kernel or step."""

    def steps(self) -> pl.DataFrame:
        """Every step, with its parts."""

    def step_summary(self) -> pl.DataFrame:
        """The steps of each process in one row."""

    def step_phases(self) -> pl.DataFrame:
        """Each step's phases."""

    def slow_steps(self) -> pl.DataFrame:
        """The steps that took longest, and what they had more of."""

    def input_waits(self) -> pl.DataFrame:
        """Each wait of a step for its input."""

    def data_preparation(self) -> pl.DataFrame:
        """What the loaders did."""

    def idle_steps(self) -> pl.DataFrame:
        """The idle time of each step and device."""

    def idle_ops(self) -> pl.DataFrame:
        """What the host did while a device was idle."""

    def launches(self) -> pl.DataFrame:
        """Launch delays, by stream."""

    def short_launches(self) -> pl.DataFrame:
        """Kernels shorter than their launch."""

    def queue(self) -> pl.DataFrame:
        """The launch queue of each stream."""

    def bandwidth(self) -> pl.DataFrame:
        """Copies by kind."""

    def sequences(self) -> pl.DataFrame:
        """Sequences of kernels that repeat."""

    def overlap(self) -> pl.DataFrame:
        """Communication and computation of each device, and both at once."""

    def device_use(self) -> pl.DataFrame:
        """Use of each device."""

    def kernel_launches(self) -> pl.DataFrame:
        """Blocks, occupancy and more of each kernel."""

    def kernel_lengths(self) -> pl.DataFrame:
        """Kernels by length."""

    def utilization(self) -> pl.DataFrame:
        """FLOP rates against the peaks."""

    def missing_costs(self) -> pl.DataFrame:
        """Ops without a cost model."""

    def kinds(self) -> pl.DataFrame:
        """Time by kind of op."""

    def kernel_totals(self) -> pl.DataFrame:
        """Distinct kernels by time."""

    def unattributed(self) -> pl.DataFrame:
        """Time without an op, by reason."""

    def gaps(self) -> pl.DataFrame:
        """Gaps between device work."""

    def range_totals(self) -> pl.DataFrame:
        """Time by user range."""

    def compiled(self) -> pl.DataFrame:
        """Compiled regions."""

    def iterations(self) -> pl.DataFrame:
        """Iterations by a key node."""

    def communication(self) -> pl.DataFrame:
        """Communication by rank."""

    def collectives(self) -> pl.DataFrame:
        """Every collective, over its ranks."""

    def groups(self) -> pl.DataFrame:
        """Groups of ranks."""

    def collective_waits(self) -> pl.DataFrame:
        """Who waited for whom in collectives."""

    def stragglers(self) -> pl.DataFrame:
        """How often each rank was last."""

    def step_imbalance(self) -> pl.DataFrame:
        """Steps over their ranks."""

    def memory(self) -> pl.DataFrame:
        """Memory of each device."""

    def memory_by_op(self) -> pl.DataFrame:
        """Memory by op."""

    def memory_kinds(self) -> pl.DataFrame:
        """What lived at the peak."""

    def memory_steps(self) -> pl.DataFrame:
        """Memory by step."""

    def cpu_utilization(self) -> pl.DataFrame:
        """The processors, sampled."""

    def notes(self) -> pl.DataFrame:
        """What the readers must tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to change. Times in ns.

    The saving lies between ``saving_least`` and ``saving_most``; ``saving_most`` is None where nothing
    bounds it. ``saving`` is the best estimate; None where the replay of ``edit`` makes it, or nothing does.
    ``reasoning`` says how all were computed, from columns that the profile has.
    """

    #: What the program does, in one sentence with its figures.
    what: str
    #: Where: ops, source lines, calls.
    evidence: str
    #: What to change, as code where the framework is known.
    recommendation: str
    #: The time that this is about.
    time: int
    saving_least: int
    saving_most: int | None
    reasoning: str
    #: ``high``, ``medium`` or ``low``: how likely the change saves anything.
    confidence: str
    saving: int | None = None
    #: The evidence as rows, those with most time first: any of the columns of EVIDENCE.
    rows: pl.DataFrame | None = None
    #: What the change would do to the timeline; None where that cannot be said.
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The profile does not hold what the detector needs."""

    reason: str


#: An empty sequence says that the detector looked at everything it needs and found nothing.
Answer: TypeAlias = Sequence[Finding] | CannotTell


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One question about a profile. A module of ``advice/detectors`` defines one as ``DETECTOR``."""

    #: Its name, which is the module's.
    name: str
    #: The question that it answers, for the documentation.
    question: str
    find: Callable[[Answers], Answer]
    #: What it looks at, and when it says that it cannot tell: a sentence each, for the documentation.
    looks_at: str = ""
    abstains: str = ""
    #: The names of the rules of other tools that it answers, such as ``DLProf: Bad Tensor Shape``.
    known_as: Sequence[str] = ()
