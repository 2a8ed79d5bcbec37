"""Find work that began before its launch or far too late after it: then the clocks differ, and the causes
of idle time are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.question import units
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace

from .known import Launched, Note

#: Each of two times may have been rounded to microseconds separately (ns).
_ROUNDED: Final = 1_000
#: If this share of a process's linked work is early, its clocks differ; if a smaller share is early, only
#: that work is wrong.
_DIFFER: Final = 0.01
CLOCKS: Final = (
    "kernels begin before their launches: the clocks of the host and the device differ, so what the device"
    " waited for is not known"
)
LATE_SAID: Final = "begin long after all that the host did"
LATE: Final = (
    f"kernels {LATE_SAID}: the clocks of the host and the device differ, so what"
    " the device waited for is not known"
)
#: No launch of a process takes this long (ns), and this many times the time of all its launches, to reach the
#: device.
_NEVER, _TIMES = 10**9, 10
#: With fewer launches, it may be that each of them waited for other work.
_LEAST: Final = 10


def late(called: Ints, start: Ints, linked: NDArray[np.bool_], process: Ints) -> NDArray[np.bool_]:
    """Return which work has no usable launch because all work of its process began long after all
    launches."""
    wrong = np.zeros(len(start), bool)
    if not linked.any() or start[linked].max() - called[linked].min() < _NEVER:
        return wrong
    for number in np.unique(process[linked]).tolist():
        mine = linked & (process == number)
        took = int(called[mine].max() - called[mine].min())
        least = int((start[mine] - called[mine]).min())
        if int(mine.sum()) >= _LEAST and least > max(_NEVER, _TIMES * took):
            wrong |= mine
    return wrong


def early(called: Ints, start: Ints, linked: NDArray[np.bool_], process: Ints) -> NDArray[np.bool_]:
    """Return which work (``linked`` to a launch that began at ``called``) has no usable launch: it began
    before the launch, or the clocks of its process differ."""
    wrong = linked & (start < called - _ROUNDED)
    if not wrong.any():
        return wrong
    for number in np.unique(process[wrong]).tolist():
        mine = linked & (process == number)
        if int((wrong & mine).sum()) >= _DIFFER * int(mine.sum()):
            wrong |= mine
    return wrong


def early_notes(trace: Trace, launched: Mapping[str, Launched]) -> tuple[Note, ...]:
    """Return a warning with the amount of work that began before its launch or far too late, and the
    largest time."""
    begun = trace["calls"]["start"].to_numpy()
    notes = []
    for name, links in launched.items():
        call = np.where(links.replay >= 0, links.replay, links.call)
        if not len(call):
            continue
        start = trace[name]["start"].to_numpy()
        lead = np.where(call >= 0, at(begun, call, 0) - start, 0)
        count = int((lead > _ROUNDED).sum())
        if not count:
            process = trace[name]["process"].fill_null(NONE).to_numpy()
            count = int(late(at(begun, call, 0), start, call >= 0, process).sum())
            if count:
                what = (
                    f"{'kernels' if name == 'kernels' else 'copies and sets'} {LATE_SAID}, by"
                    f" {units.time(-int(lead[call >= 0].max()))} or more: clocks differ, so idle time, its"
                    " causes and launch delays are not known"
                )
                notes.append(Note("warning", what, count))
            continue
        most = int(lead.argmax())
        what = (
            f"{'kernels' if name == 'kernels' else 'copies and sets'} begin before their launches, by up to"
            f" {units.time(int(lead[most]))} ({_name_of(trace[name], most)}): clocks differ,"
            " so idle causes and launch delays are not known"
        )
        notes.append(Note("warning", what, count))
    return tuple(notes)


def _name_of(table: pl.DataFrame, row: int) -> str:
    column = "name" if "name" in table.columns else "kind"
    device, stream, name = table.select("device", "stream", column).row(row)
    text = str(name)
    return f"device {device}, stream {stream}: {text if len(text) <= 60 else text[:59] + '…'}"
