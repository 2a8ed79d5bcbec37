"""Count the records that are missing from a sequence that a profiler numbered."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from .trace import Trace

#: Key of a trace's origin: the number of missing records by process (as text); null if unknown.
MISSING_NUMBERS: Final = "missing_numbers"
#: Key of a trace's origin: the profiler also numbers records that its filters leave out.
FILTERED: Final = "numbers_of_filtered"
#: Fewer records prove nothing: the tables of a manual have 7, of 13 numbers.
_FEWEST: Final = 20
#: A longer run of missing numbers may come from a time in which nothing was recorded.
_IN_A_ROW: Final = 64


def missing_numbers(numbers: pl.Series, first: int) -> int | None:
    """Return how many numbers from ``first`` to the largest are missing; None if the numbers prove
    nothing."""
    present = np.unique(numbers.drop_nulls().to_numpy())
    if len(present) < max(_FEWEST, len(numbers) // 2) or present[0] < first:
        return None
    breaks = np.diff(present, prepend=first - 1) - 1
    return None if breaks.max() > _IN_A_ROW else int(breaks.sum())


def numbers_of(trace: Trace, process: int) -> tuple[int | None, bool]:
    """Return how many kernel numbers of a process are missing in its file (None if unknown), and whether a
    filter may have left them out."""
    first, of = 0, trace.origin
    for part in trace.origin.get("parts", ()):
        begun = int(part.get("first_process", 0))
        if begun <= process:
            first, of = begun, part
    by_process: Any = of.get(MISSING_NUMBERS)
    number = by_process.get(str(process - first)) if isinstance(by_process, dict) else None
    known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 62
    return (number if known else None), bool(of.get(FILTERED))
