"""The words of the frames of memory: curve, ops, blocks, kinds and steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "allocated_at": "time of the allocation; null if it is not in the trace",
        "released_at": "time of the release; null if it is not in the trace",
    },
    "bytes": {
        "peak_reserved": "device memory reserved by the allocator when the peak was first reached",
        "peak_unused": "part of peak_reserved that was not in use",
        "most_unused": "most memory that was reserved and not in use at one time",
        "unused": "memory reserved by the allocator and not in use: reserved - in_use",
        "increase": "allocations less releases while the op was open, those of ops inside it included",
        "self_increase": "allocations less releases at which the op was the innermost",
        "self_allocated": "allocations at which the op was the innermost, added up",
        "growth": "in_use less that at the end of the step before",
        "kept": (
            "what the step allocated and was in use as the process's last step ended; null without"
            " addresses"
        ),
    },
    "count": {
        "self_allocations": "allocations at which the op was the innermost",
        "unpaired": (
            "allocations without their release in the trace, and releases without their allocation;"
            " null without addresses"
        ),
        "held_blocks": "blocks of memory: allocations in use at the peak",
        "kept_blocks": "blocks that the step allocated and were in use as the last step ended",
    },
    "number": {
        "address": "the block's address",
        "release_op_id": "op_id of the innermost op open at the release",
        "release_step": "the number of the step in which it was released",
    },
    "text": {
        "release_op": "the innermost op open at the release",
        "kind_reason": "the fact that proves the kind; for unknown, why none does",
    },
}
