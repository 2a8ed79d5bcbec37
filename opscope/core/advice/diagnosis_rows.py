"""What the diagnosis looks at, and how a part of the time becomes a row in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.diagnosis_limits import CANNOT_TELL
from opscope.core.advice.diagnosis_sums import Sums
from opscope.core.advice.diagnosis_time import Divided, Host, Steps
from opscope.core.advice.diagnosis_words import ns, share
from opscope.core.analysis.device.device_work import DeviceWork
from opscope.core.analysis.host.in_words import NEAR, borderline
from opscope.core.perf.devices.peaks import Device
from opscope.core.perf.devices.vendors import call_names, vendor_of
from opscope.core.tables.trace import Trace


@dataclass(frozen=True, slots=True)
class Facts:
    """What the diagnosis looks at. ``divided``: the judged time of each device or process. ``work``: None if
    the CPU is the device. ``sums``: those of the ops; ``unattributed``: device time (ns) without an op.
    ``loaders``: ``input_waits.waits``. ``stragglers``, ``memory``: the frames of these names. ``device``: the
    limits of the device, or why they are not known. ``losses``: what the data lacks, a sentence each."""

    trace: Trace
    divided: list[Divided]
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
    losses: list[str] = field(default_factory=list)


class Judge:
    """The judged time, its parts, and the rows that findings on them become."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.time = sum(device.time for device in facts.divided)
        self.steps = sum(device.steps for device in facts.divided)
        self.parts: dict[str, int] = {}
        for one in facts.divided:
            for name, part in one.parts.items():
                self.parts[name] = self.parts.get(name, 0) + part
        self.on_gpu = facts.work is not None
        #: How far below its threshold a part is borderline.
        self.near = 1.0 if self.on_gpu else NEAR
        self.vendor = vendor_of(facts.trace, call_names(facts.trace))
        self.say = words.Words(facts.framework, self.on_gpu)
        self.ranks = dict(facts.trace["processes"].select("process", "rank").rows())

    def surely(self, findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the findings, what costs most first. Those near their threshold are borderline;
        beside a clear one, those below their threshold are left out."""
        rows = sorted(findings, key=lambda row: -row["lost"])
        clear = any(row["sure"] for row in rows)
        told = []
        for row in rows:
            limit, over, sure = row.pop("limit"), row.pop("over"), row.pop("sure")
            near = row.pop("near")
            if sure:
                told.append(row)
            elif over or not clear:
                told.append(row | borderline(row["finding"], row["text"], limit, not near))
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
        ``sure``: whether the steps agree that it is over it."""
        row = self._row(finding, lost, *rest)
        return row | {
            "limit": limit,
            "over": measured > limit,
            "near": measured <= NEAR * limit,
            "sure": sure and measured > NEAR * limit,
        }

    def _within(self, part: float, limit: float) -> bool:
        """Return whether a part (ns) is too small for a finding, even one near its limit."""
        return part * self.near <= limit * self.time

    def _row(
        self,
        finding: str,
        lost: float | None,
        text: str,
        to_try: str | None,
        process: int | None = None,
    ) -> dict[str, Any]:
        processes = {device.process for device in self.facts.divided}
        if process is None and len(processes) == 1 and finding != CANNOT_TELL:
            (process,) = processes
        process = None if process is None or process < 0 else process
        return {
            "process": process,
            "rank": self.ranks.get(process) if process is not None else None,
            "finding": finding,
            "share": lost / self.time if lost is not None and self.time else None,
            "lost": None if lost is None else round(lost),
            "text": text,
            "to_try": to_try,
        }

    def _part(self, time: float) -> str:
        """A part of the time: ``57.0 ms of each step's 92.0 ms (62 %)``."""
        if self.steps:
            each = f"{ns(time / self.steps)} of each step's {ns(self.time / self.steps)}"
        else:
            count = len(self.facts.divided)
            each = f"{ns(time / count)} of {ns(self.time / count)}"
            if count > 1:
                each += f" of each {'device' if self.on_gpu else 'process'}, on average"
        return f"{each} ({share(time / self.time)})"

    @property
    def _whole(self) -> str:
        if self.steps:
            return "the steps' time"
        return "the time from its first work to its last" if self.on_gpu else "the time recorded"

    def _while(self, lost: float, doing: str) -> str:
        if self.on_gpu:
            return f"the device was idle for {self._part(lost)} while the program {doing}"
        return f"the program {doing} for {self._part(lost)}"
