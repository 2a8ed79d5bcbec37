"""Who uses the processors while a process runs: the process, its child processes, or others on the
machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.finding import Answers, Floats
from opscope.core.analysis.host.cpu_utilization import held
from opscope.core.schema import CHILDREN_CPU, MACHINE_CPU, PROCESS_CPU, PROCESS_QUEUED
from opscope.core.tables.intervals import NONE, Ints

#: The processors are full above this part (0 … 1) of their time.
FULL: Final = 0.9


@dataclass(frozen=True, slots=True)
class Use:
    """The number of processors in use, as the mean over some intervals."""

    #: Processors used by the process itself, and by its child processes.
    own: float
    children: float
    #: By others.
    others: float
    #: The number of processors.
    processors: int
    #: The part of the time for which the process's first thread waited for a processor; 0 where that was not
    #: sampled.
    queued: float = 0.0

    @property
    def mine(self) -> float:
        """Processors used by the process and its child processes."""
        return self.own + self.children

    @property
    def is_full(self) -> bool:
        """Whether hardly any processor is idle."""
        return self.mine + self.others > FULL * self.processors


def use(answers: Answers, process: int | None, start: Ints, end: Ints) -> Use | None:
    """Return who uses the processors during these intervals (ns); None where that was not sampled."""
    table = answers.cpu_utilization()
    row = table.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32)))
    processors = row["processors"].item() if len(row) else None
    if not processors:
        return None
    number = NONE if process is None else process
    means = []
    for name in (MACHINE_CPU, PROCESS_CPU, CHILDREN_CPU):
        samples = held(answers.trace, name).get(number)
        means.append(None if samples is None else _mean(*samples.mean(start, end), end - start))
    machine, own, children = means
    if machine is None or own is None:
        return None
    if children is None:
        children = row["child_cores"].item() or 0.0
    busy = machine * processors
    waits = queued(answers, process, start, end)
    waited = 0.0 if waits is None else float(np.average(waits, weights=np.maximum(end - start, 1)))
    return Use(own, children, max(busy - own - children, 0.0), int(processors), waited)


def _mean(mean: Floats, count: Ints, length: Ints) -> float | None:
    """Return the mean of intervals of these lengths (0 … 1 of a processor); None where none was sampled."""
    sampled = (count > 0) & ~np.isnan(mean)
    total = int(length[sampled].sum())
    return float((mean[sampled] * length[sampled]).sum() / total) / 100 if total else None


def queued(answers: Answers, process: int | None, start: Ints, end: Ints) -> Floats | None:
    """Return the part (0 … 1) of each interval (ns) for which the process's first thread waited for a
    processor. 0 for an interval without a sample; None if samples cover less than half of the intervals'
    time."""
    samples = held(answers.trace, PROCESS_QUEUED).get(NONE if process is None else process)
    if samples is None or not len(start):
        return None
    mean, count = samples.mean(start, end)
    sampled = (count > 0) & ~np.isnan(mean)
    if 2 * int((end - start)[sampled].sum()) < int((end - start).sum()):
        return None
    waited: Floats = np.clip(np.where(sampled, mean, 0.0) / 100, 0.0, 1.0)
    return waited
