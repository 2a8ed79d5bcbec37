"""Memory as tables: the peak of each device, and which ops held what was in use then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import units
from .layout import Table

if TYPE_CHECKING:
    from opscope.profile import Profile

_NONE: Final = "memory was not recorded (opscope run --memory)"
_SHOWN: Final = (
    "process",
    "device",
    "share",
    "at_peak",
    "op",
    "allocations",
    "direction",
    "layer",
    "reason",
    "source",
)


def lines(profile: Profile) -> list[tuple[str, str, str]]:
    """For the summary: of each device that any process used, the highest peak of a process."""
    frame = profile.memory().sort("device", "peak_memory", descending=[False, True])
    made = []
    for rows in frame.partition_by("device", maintain_order=True):
        row = rows.row(0, named=True)
        number = row["device"]
        what = "CPU" if number == -1 else "GPU" if number is None else f"GPU {number}"
        # what was there before a recording began is not in it
        remark = "of tensors made while it was recorded" if row["device"] == -1 else ""
        if row["reserved"]:
            remark = f"{units.size(row['reserved'])} reserved"
        if len(rows) > 1:
            remark = ", ".join(filter(None, (remark, f"the highest of {len(rows)} processes")))
        made.append((f"peak memory, {what}", units.size(row["peak_memory"]), remark))
    return made


def peaks(profile: Profile, top: int | None = None) -> Table:
    """One row per process and device."""
    from .console import frame_table

    return frame_table("Memory", profile.memory().drop("peak_time"), _NONE, top)


def by_op(profile: Profile, top: int | None) -> Table:
    """What was in use at the peak, by the op that had allocated it."""
    from .console import totals

    frame = profile.memory_by_op()
    return totals("Memory by op, as it was at the peak", frame, _SHOWN, top, _NONE)
