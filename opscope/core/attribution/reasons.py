"""Rule 8: a kernel, copy or set without an op has a reason from a closed list."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.known import Flags, Launched, Rows
from opscope.core.tables.columns import pieces
from opscope.core.tables.intervals import NONE
from opscope.core.tables.lanes import lanes
from opscope.core.tables.mapped import Mapped, full, zeros

#: Why a kernel, copy or set has no op: a closed list. None means that it has one.
REASONS: Final = (
    None,
    "no launch record",
    "the launching thread has no op ranges",
    "launched outside any op range",
    "the trace has no op ranges",
    "replayed from a CUDA graph whose capture is not in the trace",
    "names no op, although kernels of the trace do",
    "replayed from a CUDA graph that runs nodes concurrently and does not number them",
    "replayed from a CUDA graph that any of several captures may have made",
    "several launches share its id",
)
HAS_OP, NO_LAUNCH, NO_RANGES_ON_THREAD, OUTSIDE, NO_RANGES, NO_CAPTURE, UNNAMED = range(7)
SHARED: Final = len(REASONS) - 1
#: ``Replayed.why`` → place in REASONS.
OF_GRAPH: Final = np.array([NO_CAPTURE, NO_CAPTURE, 7, 8], np.uint8)


def why_calls_have_none(
    calls: pl.DataFrame,
    used: Flags,
    call_op: Rows,
    with_ranges: Collection[tuple[int, ...]],
    any_ops: bool,
    mapped: Mapped | None = None,
) -> NDArray[np.uint8]:
    """Return each call's place in REASONS. ``with_ranges``: the (process, thread) pairs with op ranges."""
    why = full(mapped, len(calls), HAS_OP if any_ops else NO_RANGES, np.uint8)
    missing = zeros(mapped, len(calls), bool)
    for part in pieces(len(calls)):
        missing[part] = used[part] & (call_op[part] < 0)
    if any_ops and missing.any():
        for key, rows in lanes(calls, mapped).rows(missing, mapped):
            reason = OUTSIDE if key in with_ranges else NO_RANGES_ON_THREAD
            for part in pieces(len(rows)):
                why[rows[part]] = reason
    return why


def launched_by(
    link: Rows, call_op: Rows, why: NDArray[np.uint8], mapped: Mapped | None = None
) -> Launched:
    """Return for a table's rows the op of their launching calls ``link``, or the reason why there is none."""
    count = len(link)
    op, replay = (full(mapped, count, NONE, np.int32) for _ in range(2))
    reason = full(mapped, count, NO_LAUNCH, np.uint8)
    for part in pieces(count):
        has = part.start + np.flatnonzero(link[part] >= 0)
        call = link[has]
        op[has], reason[has] = call_op[call], why[call]
    return Launched(link, op, reason, zeros(mapped, count, bool), replay)
