"""How many records are missing between those that a profiler numbered one after another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from .trace import Trace

#: Key of a trace's origin: by process (as text), how many numbers are missing; null where that is not known.
MISSING_NUMBERS: Final = "missing_numbers"
#: Key of a trace's origin: the profiler numbers what its filters leave out, too.
FILTERED: Final = "numbers_of_filtered"
#: Of fewer records nothing is concluded: the tables of a manual have 7, of 13 numbers.
_FEWEST: Final = 20
#: More numbers that are missing in a row may be those of a time in which nothing was recorded.
_IN_A_ROW: Final = 64


def missing_numbers(numbers: pl.Series, first: int) -> int | None:
    """Return how many numbers from ``first`` to the largest are missing; None where that tells nothing."""
    present = np.unique(numbers.drop_nulls().to_numpy())
    if len(present) < max(_FEWEST, len(numbers) // 2) or present[0] < first:
        return None
    breaks = np.diff(present, prepend=first - 1) - 1
    return None if breaks.max() > _IN_A_ROW else int(breaks.sum())


def numbers_of(trace: Trace, process: int) -> tuple[int | None, bool]:
    """Return how many numbers of a process's kernels are missing in its file (None if not known), and whether
    a filter may have left them out."""
    first, of = 0, trace.origin
    for part in trace.origin.get("parts", ()):
        begun = int(part.get("first_process", 0))
        if begun <= process:
            first, of = begun, part
    by_process: Any = of.get(MISSING_NUMBERS)
    number = by_process.get(str(process - first)) if isinstance(by_process, dict) else None
    known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 62
    return (number if known else None), bool(of.get(FILTERED))
