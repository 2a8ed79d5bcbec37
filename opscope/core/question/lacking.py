"""The closed list of reasons why the answers of a job's ranks cannot be added up, as in docs/scale.md."""

from __future__ import annotations

from typing import Final

from .record import Lacks

EXECUTIONS: Final = Lacks(
    "a row is one execution of an op; whether it lacks kernels is judged by the equal calls of all "
    "ranks, and the sums are of fractions, which depend on the order in which they are added. "
    "utilization has FLOPs against the peak by step"
)
THRESHOLDS: Final = Lacks("their size is bounded by thresholds over the whole job")
MEDIANS: Final = Lacks(
    "they have medians, percentiles or extremes of single events, which do not add up"
)
MOMENTS: Final = Lacks("a row is a moment, an allocation or a sample; memory has the peaks")
PATHS: Final = Lacks("a path needs every event of every rank")
PATTERNS: Final = Lacks("they follow single events or patterns of them")
WAITS: Final = Lacks(
    "waits for input are found among single ranges; step_phases and the diagnosis have the input's "
    "share"
)
RUNS: Final = Lacks("they are of single kernels or runs")
