"""Join result marks to calls: outputs and devices that were unknown when the call's range was pushed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.rangetext import RangeTextError, format_call, parse_result
from opscope.core.tables.columns import pairs
from opscope.core.tables.interpret import ROLE, ExtendedReadings, Meaning
from opscope.core.tables.intervals import nest
from opscope.core.tables.lanes import lanes


def merge_results(ranges: pl.DataFrame, meaning: Meaning, ops: NDArray[np.bool_]) -> Meaning:
    """Return ``meaning`` in which each op range with a result mark has the outputs in the mark.

    The mark is emitted just before the pop, on the same thread and in the same domain, so it belongs to
    the innermost range open there. A reading is made once per distinct (text, result).
    """
    marks = np.flatnonzero(meaning.role == ROLE["result"])
    if not len(marks):
        return meaning
    on = lanes(ranges).of.astype(np.int64) << 32
    keys = on + ranges["domain"].to_physical().fill_null(0).to_numpy()
    start, end = ranges["start"].to_numpy(), ranges["end"].to_numpy()
    held_row: list[NDArray[np.int64]] = []
    held_mark: list[NDArray[np.int64]] = []
    candidates = np.flatnonzero(ops)
    for key in np.unique(keys[marks]):
        of_thread = candidates[keys[candidates] == key]
        here = marks[keys[marks] == key]
        innermost = nest(start[of_thread], end[of_thread]).innermost(start[here])
        held_row.append(of_thread[innermost[innermost >= 0]])
        held_mark.append(here[innermost >= 0])
    rows, of_mark = np.concatenate(held_row), np.concatenate(held_mark)
    ops_of, marks_of, inverse = pairs(meaning.reading[rows], meaning.reading[of_mark])
    each = zip(ops_of.tolist(), marks_of.tolist(), strict=True)
    readings = ExtendedReadings(meaning)
    new_readings = np.array([_join(readings, op, mark) for op, mark in each], np.int32)
    return readings.meaning(rows, new_readings[inverse])


def _join(readings: ExtendedReadings, op: int, mark: int) -> int:
    """Add the reading ``op`` with the outputs of ``mark``; return its number (``op`` if unchanged)."""
    reading = readings.reading(op)
    if reading.call is None or reading.call.outputs is not None:
        return op
    try:
        result = parse_result(readings.text(mark))
    except RangeTextError:
        return op
    call = replace(
        reading.call,
        outputs=result.outputs,
        device=result.device or reading.call.device,
        truncated=reading.call.truncated or result.truncated,
    )
    return readings.add(replace(reading, call=call), format_call(call, None))
