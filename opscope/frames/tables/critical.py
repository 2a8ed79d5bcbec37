"""The frames of the critical path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_KIND: Final = (
    "text",
    "what the time went to: op (host time inside an op), call (CUDA call), host (a thread outside any op),"
    " launch (from a launch to the start of its work), kernel, copy, set, communication, gap (a usual gap"
    " between device work), sync (from the end of the work to the return of the call that waited for it),"
    " unexplained (the trace does not show what was waited for)",
)
_NAME: Final = (
    "text",
    "the device work's name (of a launch or gap, of the work that waited; of a sync, of the work that it"
    " waited for), the call's, else the op's",
)
_OP: Final = ("text", "the op that ran, or that launched the device work; null outside any op")
_DURATION: Final = ("ns", "end - start")
_TIME: Final = ("ns", "time on the critical path")
_SHARE: Final = ("fraction", "time / length of the critical path")
_ROWS: Final = {
    "kind": ("kind", "what the time went to"),
    "op": ("op kind", "op and kind"),
    "layer": ("layer kind", "layer and kind"),
    "kernel": ("name kind", "name of device work"),
    "step": ("process step kind", "process, step and kind"),
}


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "critical_path()",
        "one row per piece of the critical path, by time; each begins where the one before ends",
        columns(
            "start end duration kind name op direction layer source step process thread device stream",
            duration=_DURATION,
            kind=_KIND,
            name=_NAME,
            op=_OP,
        ),
    )
    for by, (keys, row) in _ROWS.items():
        yield Frame(
            f'critical_totals("{by}")',
            f"one row per {row} of the critical path, the most time first",
            columns(
                f"{keys} time share pieces",
                time=_TIME,
                share=_SHARE,
                kind=_KIND,
                name=_NAME,
                op=_OP,
            ),
        )
    yield Frame(
        "what_if()",
        "the whole trace, then one row per step",
        columns(
            "process step wall_time new_wall_time saving saving_share removed_time",
            wall_time=(
                "ns",
                "time that it took; of a step, from its start to its end on its thread",
            ),
            step=("number", "the step's number; null for the whole trace"),
        ),
    )
