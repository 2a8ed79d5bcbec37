"""Decide which ranges are ops, and which of these nest on their thread."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.attribution.known import Flags
from opscope.core.dialects import LAYER
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE

#: Domain of the ranges of a framework's runtime internals.
RUNTIME: Final = "runtime"


def op_ranges(ranges: pl.DataFrame, meaning: Meaning, first_named: int) -> tuple[Flags, Flags]:
    """Return per range row whether it is an op, and whether it is an op that a thread pushes and pops.

    In a process without ops, user ranges and layers count as ops: a library that annotates its own calls
    (cuDF, a C++ server) has no others. In a framework's process they do not: a user range around a kernel
    outside every op must not hide the gap. The ranges from row ``first_named`` on were made from kernels;
    only the kernels that name them belong to them.
    """
    role = meaning.role
    held = (ranges["end"] > ranges["start"]).fill_null(False).to_numpy()
    is_op: Flags = (role == ROLE["op"]) & held
    theirs = np.array([(one.layer or "").startswith(LAYER) for one in meaning.readings], bool)
    # a framework's runtime internals are not ops
    user = (
        ((role == ROLE["user"]) | theirs[meaning.reading])
        & held
        & (ranges["domain"] != RUNTIME).fill_null(True).to_numpy()
    )
    if user.any():
        place = ranges["process"].fill_null(NONE).to_numpy() + 1  # processes are numbered from 0
        with_ops = np.zeros(int(place.max()) + 1, bool)
        with_ops[place[is_op]] = True
        is_op |= user & ~with_ops[place]
    is_op[first_named:] = False
    # an expression: a column of one value, which it mostly is, takes no memory until it is read itself
    pushpop = ranges.select((pl.col("kind") == "pushpop").fill_null(True)).to_series().to_numpy()
    return is_op, is_op & pushpop
