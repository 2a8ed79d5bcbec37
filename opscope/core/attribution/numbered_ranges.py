"""Find iterations in a program's own ranges whose names differ only by numbers."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.enclosing import is_user_range
from opscope.core.attribution.inferred_steps import SCHEMA
from opscope.core.attribution.op_ranges import RUNTIME
from opscope.core.attribution.several_optimizers import LEAST
from opscope.core.dialects import serving
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.intervals import NONE, nest

#: How the iterations were found; for the steps of a server, their kind follows.
BY: Final = "range"
NAMED: Final = f"{BY}: "
#: Words in the names of repeated work. Other numbered ranges, such as layers, are parts of one iteration.
_AGAIN: Final = re.compile(
    r"(?<![a-z])(?:step|iter|iteration|batch|request|forward|execute|tick)(?![a-z])"
)


def numbered_iterations(
    ranges: pl.DataFrame, meaning: Meaning, mine: NDArray[np.bool_]
) -> pl.DataFrame | None:
    """Return the iterations of a process as rows of ``inferred_steps``; None if its ranges show none.

    They are the outermost user ranges, on the thread with most of them, that share one name which contains
    numbers and a word for repeated work. ``mine``: the process's ranges.
    """
    names = [
        serving.pattern(text) if is_user_range(reading) else None
        for reading, text in zip(meaning.readings, meaning.texts, strict=True)
    ]
    again = [
        name is not None and "*" in name and _AGAIN.search(name.lower()) is not None
        for name in names
    ]
    rows_of_ranges = outermost(
        ranges, np.flatnonzero(mine & np.array(again, bool)[meaning.reading]), LEAST
    )
    if rows_of_ranges is None:
        return None
    often = Counter(names[code] for code in meaning.reading[rows_of_ranges])
    name, many = often.most_common(1)[0]
    rows_of_ranges = rows_of_ranges[
        [names[code] == name for code in meaning.reading[rows_of_ranges]]
    ]
    if many < LEAST:
        return None
    return as_iterations(ranges[rows_of_ranges], pl.lit(BY))


def outermost(
    ranges: pl.DataFrame, rows: NDArray[np.int64], least: int
) -> NDArray[np.int64] | None:
    """Return the outermost of ``rows``, by time, on the thread with most of them; None if fewer than
    ``least``."""
    rows = rows[(ranges["domain"].gather(rows) != RUNTIME).fill_null(True).to_numpy()]
    if len(rows) < least:
        return None
    thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
    numbers, count = np.unique(thread, return_counts=True)
    rows = rows[thread == numbers[np.argmax(count)]]
    start, end = (ranges[name].gather(rows).fill_null(0).to_numpy() for name in ("start", "end"))
    tree = nest(start, end)
    outer = rows[np.sort(tree.order[tree.parent < 0])]
    outer = outer[np.argsort(ranges["start"].gather(outer).to_numpy(), kind="stable")]
    return outer if len(outer) >= least else None


def as_iterations(steps: pl.DataFrame, by: pl.Expr) -> pl.DataFrame:
    """Return ranges (process, thread, start, end in ns) as certain rows of ``inferred_steps``."""
    return steps.select(
        "process",
        pl.col("thread").fill_null(NONE),
        "start",
        "end",
        pl.int_range(pl.len(), dtype=pl.Int64).alias("step"),
        pl.lit(1.0).alias("confidence"),
        by.alias("by"),
    ).cast(dict(SCHEMA.items()))
