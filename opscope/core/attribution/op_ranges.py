"""Decide which ranges are ops, and which of these nest on their thread."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.attribution.known import Flags
from opscope.core.dialects import LAYER
from opscope.core.tables.columns import pieces
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE
from opscope.core.tables.mapped import Mapped, zeros

#: Domain of the ranges of a framework's runtime internals.
RUNTIME: Final = "runtime"


def op_ranges(
    ranges: pl.DataFrame, meaning: Meaning, first_named: int, mapped: Mapped | None = None
) -> tuple[Flags, Flags]:
    """Return per range row whether it is an op, and whether it is an op that a thread pushes and pops.

    In a process without ops, user ranges and layers count as ops: a library that annotates its own calls
    (cuDF, a C++ server) has no other ops. In a framework's process they do not: a user range around a kernel
    outside every op must not hide the gap. The ranges from row ``first_named`` on were made from kernels;
    only the kernels that name them belong to them. ``mapped``: where the flags are kept, if not in memory.
    """
    count = len(ranges)
    role = meaning.each(lambda reading: ROLE[reading.role], np.uint8)
    theirs = meaning.each(lambda reading: (reading.layer or "").startswith(LAYER))
    of_op, of_user = role == ROLE["op"], (role == ROLE["user"]) | theirs
    is_op, user, nested = (zeros(mapped, count, bool) for _ in range(3))
    with_ops = np.zeros(0, bool)  # per process; process -1 (unknown) comes first
    for part in pieces(count) if count else ():
        piece, reading = ranges[part], meaning.reading[part]
        is_whole_range = (piece["end"] > piece["start"]).fill_null(False).to_numpy()
        is_op[part] = of_op[reading] & is_whole_range
        # a framework's runtime internals are not ops
        outside = (piece["domain"] != RUNTIME).fill_null(True).to_numpy()
        user[part] = of_user[reading] & is_whole_range & outside
        process_code = piece["process"].fill_null(NONE).to_numpy() + 1
        seen = np.bincount(process_code, is_op[part], len(with_ops)) > 0
        seen[: len(with_ops)] |= with_ops
        with_ops = seen
    some = bool(user.any())
    for part in pieces(count) if count else ():
        piece = ranges[part]
        if some:
            process_code = piece["process"].fill_null(NONE).to_numpy() + 1
            is_op[part] |= user[part] & ~with_ops[process_code]
        is_op[part][max(first_named - part.start, 0) :] = False
        pushpop = (piece["kind"] == "pushpop").fill_null(True).to_numpy()
        nested[part] = is_op[part] & pushpop
    return is_op, nested
