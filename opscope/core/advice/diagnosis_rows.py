"""The facts that the diagnosis examines, its thresholds, and how a part of the time becomes a row in words.
The sums over pieces of ``op_totals()`` add up to the whole, so saving a profile needs only one piece in
memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.changes import Run
from opscope.core.advice.diagnosis_time import Divided, Host, Steps
from opscope.core.advice.diagnosis_words import ns, share
from opscope.core.analysis.device.device_work import DeviceWork
from opscope.core.analysis.host.in_words import NEAR, borderline
from opscope.core.analysis.host.light_diagnosis import CANNOT_TELL, MEDIAN, STEPS, WALL
from opscope.core.analysis.roofline.roofline import roofline
from opscope.core.perf.devices.peaks import Device
from opscope.core.perf.devices.vendors import call_names, vendor_of
from opscope.core.question import units
from opscope.core.tables.trace import Trace

#: A step is bound by its input if input takes more than this part of its time (the PyTorch profiler plug-in's
#: rule).
INPUT: Final = 0.05
#: Compiling inside steps after the warm-up: as low as for input, because it should not occur at all.
COMPILING: Final = 0.05
#: Communication that nothing hides (the plug-in's rule), and each other part of the time with a finding.
WORTH: Final = 0.1
#: Time of a CPU's steps outside any op: some is normal, as Python runs between ops (as in light mode).
OUTSIDE: Final = 0.3
#: The part is surely above its threshold if it is above by this many standard errors.
ERRORS: Final = 2
#: A run whose device is busy for a smaller part is not healthy (the plug-in's rule: utilization below 50 %).
BUSY: Final = 0.5
#: A start that takes most of all steps' time is a cause from this part of the wall time on.
AT_START: Final = 0.25
#: The part of their roof that well-made kernels attain. Roofs are dense peaks, which nothing attains.
ATTAINED: Final = 0.6
#: Memory is near its limit above this part of the device's (the plug-in's rule).
FULL: Final = 0.9
#: A rank is the slow one if it causes more than this part of all waiting, more than 1.5 times an equal share,
#: and its lateness is above a finding's threshold.
CAUSES: Final = 0.5
#: Kernels with a median below this (ns) take less time than the host needs to launch them, about 5 to 10 µs.
SHORT: Final = 10_000
#: The most (ns) that Python takes between two ops, recording included; longer gaps are the program's own
#: code.
BETWEEN: Final = 50_000
#: If a line waits for this part of the time outside ops, the advice is to change it before the number of ops.
WAITED: Final = 0.3
#: A device with fewer pieces of work gets no finding.
LEAST: Final = 10
#: A detector's finding keeps a run from being healthy from this part of a median step on.
WORTH_A_CHANGE: Final = 0.05
HEALTHY: Final = "healthy"
COMPILATION: Final = "compilation"
#: The cause of idle time without a known cause: the diagnosis says that it cannot tell.
IDLE: Final = "idle device"
#: The columns of ``op_totals()`` that are summed.
NEEDED: Final = (
    "op", "op_type", "dtypes", "calls", "kernels", "device_time", "matrix_flops", "vector_flops", "bytes",
)  # fmt: skip
_BY_OP: Final = {"op": pl.String, "device_time": pl.Int64, "calls": pl.Int64}
_BY_BOUND: Final = {"bound": pl.String, "whole": pl.Int64, "ideal": pl.Float64}


@dataclass(frozen=True, slots=True)
class Sums:
    """``by_op``: op, device_time (ns), calls. ``by_bound``: bound, time and ideal time of ops with a roof.
    ``ran``: the device time (ns) of all ops, except communication."""

    by_op: pl.DataFrame
    by_bound: pl.DataFrame
    ran: int


def sums(rows: pl.DataFrame, device: Device | None, on_gpu: bool) -> Sums:
    """Return the sums of rows of ``op_totals()``; without a ``device`` nothing has a roof."""
    by_op = rows.group_by("op").agg(pl.col("device_time", "calls").sum())
    by_op = by_op.select(pl.col(name).cast(kind) for name, kind in _BY_OP.items())
    none = pl.DataFrame(schema=_BY_BOUND)
    if device is None:
        return Sums(by_op, none, 0)
    count = pl.col("kernels") if on_gpu else pl.col("calls")
    talks = (pl.col("op_type").cast(pl.String) == "communication").fill_null(False)
    ran = rows.filter((pl.col("device_time") > 0) & (count > 0) & ~talks)
    each = ran.select(
        pl.col("device_time").alias("whole"),
        (pl.col("device_time") / count).alias("duration"),
        *((pl.col(name) / count).alias(name) for name in ("matrix_flops", "vector_flops", "bytes")),
        pl.col("dtypes").cast(pl.String).str.extract(r"^(\w+)").alias("dtype"),
    )
    rated = roofline(each, device).filter(pl.col("bound").is_not_null())
    ideal = pl.col("whole") * pl.min_horizontal("efficiency", 1.0)
    by_bound = rated.group_by("bound").agg(pl.col("whole").sum(), ideal.sum().alias("ideal"))
    by_bound = by_bound.select(pl.col(name).cast(kind) for name, kind in _BY_BOUND.items())
    return Sums(by_op, by_bound, int(ran["device_time"].sum()))


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that the diagnosis examines. ``divided``: the judged time of each device or process;
    ``usual``: the time of the steps that are not slow; the same list if no step is slow. ``wall``: the wall
    time of the process that ran longest (ns). ``work``: None if the CPU is the device. ``sums``: sums over
    the ops; ``unattributed``: device time (ns) without an op. ``loaders``: ``input_waits.waits``.
    ``stragglers``, ``memory``: the frames of these names. ``device``: the limits of the device, or why they
    are not known. ``losses``: what the data lacks, one sentence for each. ``ops_lost``: why it is not known
    what ran outside any op. ``captured``: how many kernels, copies and sets went into CUDA graphs and did not
    run."""

    trace: Trace
    divided: list[Divided]
    usual: list[Divided]
    wall: int
    #: From the first event to the last (ns). A start's cost is judged by its part of this time, because
    #: imports have a cost in every run.
    window: int
    steps: Steps
    host: Host
    work: DeviceWork | None
    sums: Callable[[], Sums]
    unattributed: Callable[[], int]
    loaders: pl.DataFrame
    stragglers: pl.DataFrame
    memory: pl.DataFrame
    device: tuple[Device | None, str | None]
    framework: str | None
    #: The host's work outside any op (``outside_lines``).
    lines: Callable[[], pl.DataFrame]
    #: The properties of the run that a proposed change must fit.
    run: Run
    losses: list[str] = field(default_factory=list)
    ops_lost: str | None = None
    captured: int = 0


class Judge:
    """The judged time, its parts, and the rows of findings on them. ``median``: the steps that are not slow
    are judged, so parts are those of a median step."""

    def __init__(self, facts: Facts, median: bool = True) -> None:
        self.facts, self.median = facts, median
        self.divided = facts.usual if median else facts.divided
        self.time = sum(device.time for device in self.divided)
        self.steps = sum(device.steps for device in self.divided)
        self.parts: dict[str, int] = {}
        for one in self.divided:
            for name, part in one.parts.items():
                self.parts[name] = self.parts.get(name, 0) + part
        self.on_gpu = facts.work is not None
        #: A part is borderline up to this far below its threshold.
        self.near = 1.0 if self.on_gpu else NEAR
        self.vendor = vendor_of(facts.trace, call_names(facts.trace))
        self.say = words.Words(facts.framework, self.on_gpu, facts.run)
        self.ranks = dict(facts.trace["processes"].select("process", "rank").rows())

    def surely(self, findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the findings, the costliest first. Findings near their threshold are borderline; if another
        one is clear, those below their threshold are left out."""
        rows = sorted(findings, key=lambda row: -row["lost"])
        clear = any(row["sure"] for row in rows)
        told = []
        for row in rows:
            limit, over, sure = row.pop("limit"), row.pop("over"), row.pop("sure")
            near = row.pop("near")
            if sure:
                told.append(row | {"sure": True})
            elif over or not clear:
                text = borderline(row["finding"], row["text"], limit, not near)
                told.append(row | text | {"sure": False})
        return told

    def _judged(
        self,
        finding: str,
        lost: float,
        measured: float,
        limit: float,
        *rest: Any,
        sure: bool = True,
    ) -> dict[str, Any]:
        """Return the row of a finding whose part of the time, ``measured``, is over ``limit`` or near it;
        ``sure``: whether the steps agree that it is over the limit."""
        row = self._row(finding, lost, *rest)
        return row | {
            "limit": limit,
            "over": measured > limit,
            "near": measured <= NEAR * limit,
            "sure": sure and measured > NEAR * limit,
        }

    def _within(self, part: float, limit: float) -> bool:
        """Return whether a part (ns) is too small for a finding, even for a borderline one."""
        return part * self.near <= limit * self.time

    def _row(
        self,
        finding: str,
        lost: float | None,
        text: str,
        to_try: str | None,
        process: int | None = None,
    ) -> dict[str, Any]:
        processes = {device.process for device in self.divided}
        if process is None and len(processes) == 1 and finding != CANNOT_TELL:
            (process,) = processes
        process = None if process is None or process < 0 else process
        return {
            "process": process,
            "rank": self.ranks.get(process) if process is not None else None,
            "finding": finding,
            "share": lost / self.time if lost is not None and self.time else None,
            "of": None if lost is None else self._of,
            # devices and ranks run at the same time
            "lost": None if lost is None else round(lost / max(1, len(self.divided))),
            "text": text,
            "to_try": to_try,
            "sure": True,
        }

    def _part(self, time: float) -> str:
        """A part of the time: ``57.0 ms of a median step's 92.0 ms (62 %)``."""
        part = time / self.time
        if self.steps and self.median:
            each = f"{ns(part * self.facts.steps.median)} of a median step's {ns(self.facts.steps.median)}"
        elif self.steps:
            count, total = self.facts.steps.many, self.time / len(self.divided)
            each = f"{ns(part * total)} of the {ns(total)} of {units.counted(count, 'step')}"
        else:
            count = len(self.divided)
            each = f"{ns(time / count)} of the {ns(self.time / count)} "
            if self.on_gpu:
                each += (
                    "from its" if count == 1 else "from each device's"
                ) + " first work to its last"
            else:
                each += f"recorded{'' if count == 1 else ' of each process'}"
            each += "" if count == 1 else ", on average"
        return f"{each} ({share(part)})"

    @property
    def _of(self) -> str:
        return WALL if not self.steps else MEDIAN if self.median else STEPS

    @property
    def _whole(self) -> str:
        if self.steps:
            return "the steps' time"
        return "the time from its first work to its last" if self.on_gpu else "the time recorded"

    def _while(self, lost: float, doing: str) -> str:
        if self.on_gpu:
            return f"the device was idle for {self._part(lost)} while the program {doing}"
        return f"the program {doing} for {self._part(lost)}"
