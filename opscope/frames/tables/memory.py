"""The frames of memory: its curve, its ops, its blocks, what is in use at the peak, its growth by step."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_KIND = (
    "text",
    "parameter, gradient, optimizer state, activation, temporary, input; unknown if nothing proves it",
)


def frames() -> Iterator[Frame]:
    """Yield the frames, in the order of the documentation."""
    yield Frame(
        "memory_curve()",
        "one row per process, device and point of time",
        columns(
            "process device time in_use reserved unused",
            time=("ns", "time of the change"),
            in_use=("bytes", "memory in use after the change"),
            reserved=("bytes", "device memory that the allocator had reserved then"),
        ),
    )
    yield Frame(
        "memory_ops()",
        "one row per process, device and name of an op that was open at a change of memory",
        columns(
            "process device op calls increase self_increase allocations self_allocations allocated"
            " self_allocated reason",
            calls=("count", "executions of the op in the process, with memory or without"),
            allocations=("count", "allocations while the op was open"),
            allocated=("bytes", "allocations while the op was open, added up"),
        ),
    )
    yield Frame(
        "memory_events()",
        "one row per block of memory: an allocation with its release",
        columns(
            "process device address bytes allocated_at released_at duration op direction layer step"
            " op_id release_op release_step release_op_id kind kind_reason reason",
            bytes=("bytes", "the block's size"),
            duration=("ns", "released_at - allocated_at"),
            op=("text", "the innermost op open at the allocation"),
            step=("number", "the number of the step in which it was allocated"),
            op_id=("number", "id of the range of that op; null if there is none"),
            kind=_KIND,
            reason=("text", "why its allocation or its release is missing; null if it has both"),
        ),
    )
    yield Frame(
        "memory_kinds()",
        "one row per process, device, kind, layer and reason, of what was in use at the peak",
        columns(
            "process device kind layer at_peak share held_blocks reason",
            kind=_KIND,
            layer=("text", "module path of the op that allocated it; null outside any layer"),
            at_peak=("bytes", "the part of the device's peak that is of this kind and layer"),
            share=("fraction", "at_peak / the device's peak"),
            reason=("text", "the fact that proves the kind; for unknown, why none does"),
        ),
    )
    yield Frame(
        "memory_steps()",
        "one row per process, device and step that ended",
        columns(
            "process device step start end in_use growth peak_memory reserved allocated released kept"
            " kept_blocks",
            in_use=("bytes", "memory in use as the step ended"),
            peak_memory=("bytes", "most memory in use at one time of the step"),
            reserved=("bytes", "device memory that the allocator had reserved as the step ended"),
            allocated=("bytes", "allocations during the step, added up"),
            released=("bytes", "releases during the step, added up"),
        ),
    )
