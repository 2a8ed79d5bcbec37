"""Rule 5: a kernel, copy or set that a CUDA graph runs belongs to the op that captured its node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opscope.core.attribution.compiled_regions import REGION_NAMES
from opscope.core.attribution.cuda_graphs import Replayed
from opscope.core.attribution.known import Flags, Launched, Nests, Rows
from opscope.core.attribution.reasons import HAS_OP, NO_LAUNCH, NO_RANGES, OF_GRAPH, OUTSIDE
from opscope.core.tables.columns import at
from opscope.core.tables.interpret import Meaning


def compiled_regions(meaning: Meaning) -> Flags:
    """Return a flag per range row: whether it is a region that ``torch.compile`` made."""
    flags: Flags = meaning.each(
        lambda r: r.role == "op" and r.call is not None and r.call.name.startswith(REGION_NAMES)
    )[meaning.reading]
    return flags


def captured_ops(
    replay: Replayed,
    launched: Launched,
    call_op: Rows,
    why: NDArray[np.uint8],
    nests: Nests,
    is_region: Flags,
) -> tuple[Launched, int]:
    """Return ``launched`` with the op that captured each node, or the reason why none is known.

    A compiled region that replays its own CUDA graph is the one exception: if the capture is not in the
    trace, the region gets the rows (rule 6), marked as inferred. The second result is the number of such
    rows. A CUDA graph that was traced as a whole has no nodes: it belongs to the op that launched it.
    """
    op = at(call_op, replay.call)
    for key, nested in nests.items():
        if nested is None:
            continue
        tree, rows = nested
        here = replay.has_node & (replay.node_process == key[0]) & (replay.node_thread == key[1])
        op[here] = at(rows, tree.innermost(replay.node_time[here]))
    replaying = launched.op[replay.rows]
    op = np.where(replay.whole, replaying, op)
    region = (op < 0) & at(is_region, replaying, False)
    op = np.where(region, replaying, op)
    reason = np.where(replay.call >= 0, at(why, replay.call, OUTSIDE), OF_GRAPH[replay.why])
    reason[replay.has_node] = OUTSIDE if nests else NO_RANGES
    reason[launched.call[replay.rows] < 0] = NO_LAUNCH
    replayed_ops = replace(
        launched,
        op=launched.op.copy(),
        reason=launched.reason.copy(),
        inferred=launched.inferred.copy(),
        replay=launched.replay.copy(),
    )
    replayed_ops.op[replay.rows] = op
    replayed_ops.reason[replay.rows] = np.where(op >= 0, HAS_OP, reason)
    replayed_ops.inferred[replay.rows] = (replay.inferred | region) & (op >= 0)
    replayed_ops.replay[replay.rows] = launched.call[replay.rows]
    return replayed_ops, int(region.sum())
