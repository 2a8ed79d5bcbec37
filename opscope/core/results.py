"""Result marks: outputs and devices not known when a range was pushed, joined to its call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.interpret import ROLE, Meaning
from opscope.core.intervals import nest
from opscope.core.rangetext import RangeTextError, format_call, parse_result


def merge_results(ranges: pl.DataFrame, meaning: Meaning, ops: NDArray[np.bool_]) -> None:
    """Give each op range that holds a result mark the reading with those outputs.

    The mark goes out just before the pop, on the same thread and in the same domain, so it belongs
    to the innermost range open there. Readings are made once per distinct (text, result).
    """
    marks = np.flatnonzero(meaning.role == ROLE["result"])
    if not len(marks):
        return
    keys = ranges.select(
        pl.col("process").fill_null(-1),
        pl.col("thread").fill_null(-1),
        pl.col("domain").to_physical().fill_null(0).cast(pl.Int64),
    ).to_numpy()
    start, end = ranges["start"].to_numpy(), ranges["end"].to_numpy()
    held_row: list[NDArray[np.int64]] = []
    held_mark: list[NDArray[np.int64]] = []
    candidates = np.flatnonzero(ops)
    for key in np.unique(keys[marks], axis=0):
        of_thread = candidates[(keys[candidates] == key).all(axis=1)]
        here = marks[(keys[marks] == key).all(axis=1)]
        found = nest(start[of_thread], end[of_thread]).innermost(start[here])
        held_row.append(of_thread[found[found >= 0]])
        held_mark.append(here[found >= 0])
    rows, of_mark = np.concatenate(held_row), np.concatenate(held_mark)
    pairs = np.stack((meaning.reading[rows], meaning.reading[of_mark]), axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    made = np.array([_joined(meaning, int(op), int(mark)) for op, mark in distinct], np.int32)
    meaning.reading[rows] = made[inverse.reshape(-1)]


def _joined(meaning: Meaning, op: int, mark: int) -> int:
    reading = meaning.readings[op]
    if reading.call is None or reading.call.outputs is not None:
        return op
    try:
        told = parse_result(meaning.texts[mark])
    except RangeTextError:
        return op
    call = replace(
        reading.call,
        outputs=told.outputs,
        device=told.device or reading.call.device,
        truncated=reading.call.truncated or told.truncated,
    )
    meaning.readings.append(replace(reading, call=call))
    meaning.texts.append(format_call(call, None))
    return len(meaning.readings) - 1
