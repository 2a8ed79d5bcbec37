"""The descriptions of Perfetto's tracks: the process and thread, or the counter, of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from opscope.core.hlo.wire import WireError, fields, number, spans, text

#: The most tracks of a file, and the most levels of tracks.
_MOST: Final = 1 << 20
_DEEPEST: Final = 32
#: TrackDescriptor.
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER, _STATIC_NAME = 1, 2, 3, 4, 5, 8, 10
#: Units of counters by Perfetto's numbers.
_UNITS: Final = {1: "ns", 2: "count", 3: "bytes"}


@dataclass(slots=True)
class Track:
    """A track as described; without a process or thread of its own, it has those of its parent track."""

    name: str = ""
    parent: int = 0
    pid: int | None = None
    process: str | None = None
    tid: int | None = None
    thread: str | None = None
    unit: str = ""
    factor: int = 1
    adds: bool = False


class Descriptors:
    """The tracks by their numbers."""

    def __init__(self) -> None:
        self._tracks: dict[int, Track] = {}

    def add(self, data: Any, message: Any) -> None:
        """Store a descriptor; a second one for a track adds to the first."""
        track = self._tracks.setdefault(number(message, _UUID), Track())
        if len(self._tracks) > _MOST:
            raise WireError(f"more than {_MOST:,} tracks")
        track.name = text(data, message, _NAME) or text(data, message, _STATIC_NAME) or track.name
        track.parent = number(message, _PARENT) or track.parent
        for span in spans(message, _PROCESS):
            process = fields(data, *span)
            track.pid = number(process, 1)
            track.process = text(data, process, 6) or None
        for span in spans(message, _THREAD):
            thread = fields(data, *span)
            track.pid, track.tid = number(thread, 1), number(thread, 2)
            track.thread = text(data, thread, 5) or None
        for span in spans(message, _COUNTER):
            counter = fields(data, *span)
            track.unit = text(data, counter, 6) or _UNITS.get(number(counter, 3), "")
            track.factor = number(counter, 4) or 1
            track.adds = bool(number(counter, 5))

    def whole(self, uuid: int) -> Track:
        """Return the track with the process and the thread of its ancestors."""
        track = self._tracks.get(uuid, Track())
        joined = Track(**{name: getattr(track, name) for name in Track.__slots__})
        above, steps = track, 0
        while above.parent in self._tracks and steps < _DEEPEST:
            above, steps = self._tracks[above.parent], steps + 1
            joined.pid = above.pid if joined.pid is None else joined.pid
            joined.process = joined.process or above.process
            if joined.tid is None and above.tid is not None:
                joined.tid, joined.thread = above.tid, above.thread
        return joined

    def processes(self) -> dict[int, str]:
        """The names of processes by pid, as far as tracks have them."""
        return {
            track.pid: track.process
            for track in self._tracks.values()
            if track.pid is not None and track.process
        }
