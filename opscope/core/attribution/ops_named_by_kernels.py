"""Rule 0: a kernel, copy or set that names its op belongs to that op, whatever launched it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from opscope.core.attribution.known import Flags, Launched, NamedOps, Rows
from opscope.core.attribution.reasons import HAS_OP, NO_RANGES, UNNAMED
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE


def take_named(
    ranges: pl.DataFrame, named: NamedOps, kernels: Launched, memops: Launched, is_op: Flags
) -> tuple[Launched, Launched, Flags]:
    """Return kernels, copies and ops, with each kernel in the op that it names, unless that op launched it.

    An inferred name gives way to any op that launched the kernel.
    """
    copied = named.copied if len(named.copied) else np.full(len(memops.op), NONE, np.int32)
    if max(named.op.max(initial=NONE), copied.max(initial=NONE)) < 0:
        return kernels, memops, is_op
    text = ranges["text"].to_physical().cast(pl.Int64).fill_null(NONE).to_numpy()
    ops = is_op.copy()

    def take(launched: Launched, theirs: Rows) -> Launched:
        same = (launched.op >= 0) & (at(text, launched.op) == at(text, theirs))
        taken = (theirs >= 0) & ~same
        unnamed = (theirs < 0) & (launched.reason == NO_RANGES)
        ops[theirs[taken]] = True
        reason = np.where(taken, HAS_OP, np.where(unnamed, UNNAMED, launched.reason))
        op = np.where(taken, theirs, launched.op)
        return replace(launched, op=op, reason=reason.astype(np.uint8))

    theirs = np.where(named.inferred & (kernels.op >= 0), NONE, named.op)
    kernels_named = take(kernels, theirs)
    kernels_named = replace(
        kernels_named, inferred=kernels.inferred | (named.inferred & (theirs >= 0))
    )
    return kernels_named, take(memops, copied), ops
