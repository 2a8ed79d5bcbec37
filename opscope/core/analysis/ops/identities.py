"""The identities of a trace's ops as numbers, by which the tables of ops are grouped; computed once for
all tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opscope.core import progress
from opscope.core.analysis.ops.windows import captured
from opscope.core.tables.columns import ahead
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.row_numbers import Numbering

if TYPE_CHECKING:
    from opscope.core.analysis.ops.ops import Ops


@dataclass(frozen=True, slots=True)
class Identities:
    """``number``: for each range row the number of its op's identity, -1 if it is not an op.

    Ops of one identity have equal columns in ``Ops.identify``, equal costs, and are all inside or all
    outside the windows in which kernels were captured. ``row``: per identity the last op row with it.
    ``captured``: whether it is inside such a window; None if all are. ``outline``: per identity the numbers
    of ``Ops.outline``, if requested.
    """

    number: NDArray[np.signedinteger[Any]]
    row: Ints
    captured: NDArray[np.bool_] | None
    outline: list[NDArray[np.int32]] | None = None


def identities(ops: Ops, *, outlined: bool = False) -> Identities:
    """Return the identities of the ops. Two bytes a range are kept if there are few identities.

    ``outlined``: also keep the outline of each identity, 20 bytes.
    """
    attribution = ops.attribution
    count = len(attribution.parent)
    numbering = Numbering(7)
    seen, inside = np.ones(count, np.int8), None
    # without windows ``ops.rows``, 8 bytes per op, is not needed
    if len(attribution.trace["windows"]):
        inside = captured(attribution.trace, ops.rows)
    if inside is not None:
        seen[ops.rows] = inside
    number = np.full(count, NONE, np.int32)

    def identify_part(part: slice) -> tuple[Ints, list[NDArray[Any]]]:
        rows = part.start + np.flatnonzero(attribution.is_op[part])
        reading, *others = ops.outline(rows)
        places = ops.costs.priced(rows)
        # one value in most rows
        own = np.where(places == reading, len(ops.costs.catalogue), places)
        return rows, [reading, own, *others, seen[rows]]

    # compute the cached properties that all pieces need before threads use them
    identify_part(slice(0, 0))
    row = np.empty(0, np.int64)
    outline = [np.empty(0, np.int32) for _ in range(5)] if outlined else None
    with progress.stage("telling ops apart", count, progress.ROWS) as stage:
        for part, (rows, columns) in ahead(identify_part, count):
            number[rows] = numbers = numbering.of(*columns)
            known_count = len(row)
            if numbering.many > known_count:
                row = np.append(row, np.zeros(numbering.many - known_count, np.int64))
                if outline is not None:
                    outline = _extend(outline, columns, numbers, numbering.many)
            row[numbers] = rows
            stage.add(part.stop - part.start)
    if numbering.many <= np.iinfo(np.int16).max:
        number = number.astype(np.int16)
    return Identities(number, row, None if inside is None else seen[row].astype(bool), outline)


def _extend(
    outline: list[NDArray[np.int32]],
    columns: list[NDArray[Any]],
    numbers: NDArray[np.int32],
    count: int,
) -> list[NDArray[np.int32]]:
    """Return the outlines of the first ``count`` identities, adding those that are new in a piece of rows."""
    known_count = len(outline[0])
    fresh = np.flatnonzero(numbers >= known_count)
    index = numbers[fresh] - known_count
    made = []
    reading, _, *others, _ = columns
    for part, column in zip(outline, (reading, *others), strict=True):
        new = np.empty(count - known_count, np.int32)
        new[index] = column[fresh]
        made.append(np.append(part, new))
    return made
