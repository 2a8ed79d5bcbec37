"""Read the special data of a ring's part: its segments, and where the last seconds or steps begin. A part
with a begin need not be a ring: a capture that starts in the middle of a step omits that step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from opscope.core import recording_format
from opscope.core.tables.intervals import Ints
from opscope.readers.errors import BadInput

#: The most segments that are read; a ring has about ten, and at most a few for each step that it keeps.
MAX_SEGMENTS: Final = 1 << 16
_TEXT: Final = 400


def segments(part: Path) -> list[Path]:
    """Return the segments of a ring in order; empty for a part that is not a ring.

    Raises BadInput for too many segments, and for a segment that is not a folder.
    """
    segment_folders = sorted(part.glob(recording_format.SEGMENTS))
    if len(segment_folders) > MAX_SEGMENTS:
        raise BadInput(part, f"more than {MAX_SEGMENTS} segments")
    for segment_folder in segment_folders:
        if segment_folder.is_symlink() or not segment_folder.is_dir():
            raise BadInput(segment_folder, "a segment of a recording is a plain folder")
    return segment_folders


def said(details: Any) -> dict[str, Any]:
    """Return the facts about a ring, with their types checked. If a type is wrong, the conversion's
    exception is raised."""
    begin = int(details["from_unix"])
    if not 0 <= begin < 1 << 62:
        raise ValueError(f"{begin!r:.40} is out of range")
    texts = {name: str(details[name])[:_TEXT] for name in ("made_by", "why", "last")}
    return {"from_unix": begin, **texts}


def begin(ring: Mapping[str, Any] | None, clocks: Sequence[tuple[int, int, int]]) -> int | None:
    """Return where the ring begins on the part's own clock; None if everything counts."""
    if ring is None or not clocks:
        return None
    perf, unix, _ = clocks[-1]
    return int(ring["from_unix"]) - (unix - perf)


def end(logs: Mapping[int, Ints], clocks: Sequence[tuple[int, int, int]]) -> int | None:
    """Return the end of a ring that continued after its dump: the time of its last record, or of its last
    reading of the clock."""
    last = [perf for perf, _, _ in clocks]
    for log in logs.values():
        times = log[log[:, 0] != recording_format.PAYLOAD, 1]
        last += [int(times.max())] if len(times) else []
    return max(last, default=None)


def since(begin: int, log: Ints) -> Ints:
    """Return the records of a thread from ``begin`` on; a payload belongs to the record that follows it."""
    kept: Ints = log[times(log) >= begin]
    return kept


def times(log: Ints) -> Ints:
    """Return the time of each record of a thread."""
    payload = log[:, 0] == recording_format.PAYLOAD
    time: Ints = log[:, 1].copy()
    time[payload] = np.append(time[1:], 0)[payload]
    return time
