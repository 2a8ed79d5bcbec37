"""Rule 0: a kernel that names its op belongs to that op, whatever launched it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from opscope.core.attribution.known import Flags, Launched, NamedOps
from opscope.core.attribution.reasons import HAS_OP, NO_RANGES, UNNAMED
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE


def take_named(
    ranges: pl.DataFrame, named: NamedOps, kernels: Launched, memops: Launched, is_op: Flags
) -> tuple[Launched, Launched, Flags]:
    """Return kernels, copies and ops, with each kernel in the op that it names, unless that op launched it.

    An inferred name gives way to any op that launched the kernel. Copies and sets name no op.
    """
    if named.op.max(initial=NONE) < 0:
        return kernels, memops, is_op
    theirs = np.where(named.inferred & (kernels.op >= 0), NONE, named.op)
    text = ranges["text"].to_physical().cast(pl.Int64).fill_null(NONE).to_numpy()
    same = (kernels.op >= 0) & (at(text, kernels.op) == at(text, theirs))
    taken = (theirs >= 0) & ~same
    unnamed = (theirs < 0) & (kernels.reason == NO_RANGES)
    ops = is_op.copy()
    ops[theirs[taken]] = True
    found = replace(
        kernels,
        op=np.where(taken, theirs, kernels.op),
        reason=np.where(taken, HAS_OP, np.where(unnamed, UNNAMED, kernels.reason)).astype(np.uint8),
        inferred=kernels.inferred | (named.inferred & (theirs >= 0)),
    )
    copies = np.where(memops.reason == NO_RANGES, UNNAMED, memops.reason).astype(np.uint8)
    return found, replace(memops, reason=copies), ops
