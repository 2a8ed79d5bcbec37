"""How many calls were made while nothing was recorded, as where a ring wrapped or a file lost its middle, and
how many kernels lack the record of their launch.

The ids of calls increase while they are not recorded. Calls that no profiler records take ids too, but not
while a program pauses: in 22 real traces, pauses of up to 30 s took 23 ids at most; where more ids are
missing, ops were recorded in the meantime.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.attribution.attribute import Attribution
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import SELECTED, Trace

from .lost_ops import op_names

#: A stretch counts only from these limits on: the number of missing calls, their share of all calls, and the
#: stretch's share of the time.
_CALLS, _SHARE, _TIME = 20, 0.02, 0.01
#: Missing calls must be this many times as frequent as recorded ones: a profiler that replays kernels for
#: their counters, or loads a library, makes 30 times as many.
_AS_OFTEN: Final = (0.25, 4.0)
#: If there are this many ids per recorded call, calls were left out throughout (two sampled traces: 208 and
#: 215).
_SPARSE: Final = 50
#: No more stretches than this are examined.
_MOST: Final = 64
#: If at least this many ops that launch kernels precede the first call, launches are missing.
_EARLY: Final = 20


def unrecorded(trace: Trace, process: int) -> tuple[int, int]:
    """Return how many calls of a process are missing in stretches in which none of its calls and ranges
    began, and the length (ns) of these stretches."""
    of = pl.col("process").fill_null(NONE) == process
    calls = trace["calls"].filter(of & pl.col("correlation").is_not_null()).sort("start")
    if len(calls) < _CALLS or len(trace["windows"]) or SELECTED in trace.origin:
        return 0, 0
    start, number = (calls[name].cast(pl.Int64).to_numpy() for name in ("start", "correlation"))
    last, after = np.maximum.accumulate(number), np.minimum.accumulate(number[::-1])[::-1]
    jump = after[1:] - last[:-1] - 1
    usual = (int(number.max() - number.min())) / len(number)
    wide = np.flatnonzero(jump >= _CALLS * max(usual, 1) / 2)
    wide = wide[np.argsort(-jump[wide])][:_MOST]
    usual = max(usual - int(jump[wide].sum()) / len(number), 1.0)
    missing = jump[wide] / usual
    wide = wide[missing >= max(_CALLS, _SHARE * len(number))]
    if not len(wide) or usual > _SPARSE:
        return 0, 0
    begun = trace["ranges"].filter(of)["start"].sort().to_numpy()
    edges = [start[[0, -1]], begun[[0, -1]] if len(begun) else start[:0]]
    span = int(np.ptp(np.concatenate(edges)))
    lost = time = 0
    for row in wide.tolist():
        low, high = np.searchsorted(begun, start[row : row + 2])
        quiet = int(np.diff([start[row], *begun[low:high].tolist(), start[row + 1]]).max())
        number_of = jump[row] / usual
        often = number_of / len(number) * max(span - quiet, 1) / max(quiet, 1)
        if quiet >= _TIME * span and _AS_OFTEN[0] <= often <= _AS_OFTEN[1]:
            lost, time = lost + round(number_of), time + quiet
    return lost, time


def without_launch(attribution: Attribution, rows: Ints, process: int) -> int:
    """Return how many of the kernels ``rows`` were launched while calls were recorded: they have no ids, or
    no id below the ids of all calls (kernels launched before the recording began have such ids); or many ops
    that launch kernels were recorded before the first call."""
    trace = attribution.trace
    calls, kernels, ranges = trace["calls"], trace["kernels"], trace["ranges"]
    if not len(rows):
        return 0
    of = (calls["process"].fill_null(NONE) == process).to_numpy()
    first = calls["correlation"].filter(pl.Series(of)).min()
    begun: Any = calls["start"].filter(pl.Series(of)).min()
    table = kernels[rows].select("correlation", "start")
    later = (table["correlation"] > first).fill_null(True) & (table["start"] > begun)
    ops = attribution.is_op & (ranges["process"].fill_null(NONE) == process).to_numpy()
    early = np.flatnonzero(ops & (ranges["start"].to_numpy() < begun))
    if len(early) >= _EARLY:
        of_kernels = attribution.kernels.op
        is_launching = np.zeros(len(ranges), bool)
        is_launching[of_kernels[of_kernels >= 0]] = True
        launching = op_names(attribution, np.flatnonzero(is_launching))
        early = early[np.isin(op_names(attribution, early), launching)]
    if len(early) >= _EARLY:
        later |= table["start"] > int(ranges["start"].gather(early).min())  # type: ignore[arg-type]
    return int(later.sum())
