"""Which ranges are ops, and which of them nest on their thread."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.attribution.known import Flags
from opscope.core.dialects import LAYER
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE

#: The domain of what a framework's runtime does inside.
RUNTIME: Final = "runtime"


def op_ranges(ranges: pl.DataFrame, meaning: Meaning, first_named: int) -> tuple[Flags, Flags]:
    """Per range row whether it is an op; and whether it is one that a thread pushes and pops.

    Where a process has no ops, its user ranges and layers stand for them: a library that annotates its
    own calls (cuDF, a C++ server) has no others; in a framework's process a user range around a kernel
    that no op holds must not hide the gap. The ranges from row ``first_named`` on were made of kernels:
    they hold what names them and nothing else.
    """
    role = meaning.role
    held = (ranges["end"] > ranges["start"]).fill_null(False).to_numpy()
    is_op: Flags = (role == ROLE["op"]) & held
    theirs = np.array([(one.layer or "").startswith(LAYER) for one in meaning.readings], bool)
    # what a framework's runtime does inside is no op of anybody's
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
    # not the column itself: of one value, as it mostly is, it takes no memory until it is looked at
    pushpop = ranges.select((pl.col("kind") == "pushpop").fill_null(True)).to_series().to_numpy()
    return is_op, is_op & pushpop
