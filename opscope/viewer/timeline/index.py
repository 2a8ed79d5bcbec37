"""The timeline of a profile: its lanes, made when first asked for and kept while the profile is viewed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from opscope.core.lru_cache import LRUCache
from opscope.core.once import lock_of, once
from opscope.core.tables.columns import hand_back
from opscope.core.tables.intervals import Ints
from opscope.core.tables.intervals import merge as merged
from opscope.core.tables.mapped import let_go
from opscope.viewer.long import read_into_files
from opscope.viewer.question import BadParameter

from .device_lanes import device_lanes
from .first_pictures import kept
from .host_lanes import host_lanes
from .lane import Lane, Names
from .op_kinds import all_kinds

if TYPE_CHECKING:
    from opscope.profile import Profile

__all__ = ["DEVICE", "HOST", "Timeline", "timeline_of"]

#: The parts of a timeline, and the first letter of their lanes' ids.
DEVICE, HOST = "device", "host"
_LETTER: Final = {DEVICE: "d", HOST: "h"}
#: Number of selections whose timelines are kept: the timeline of ten million kernels takes half a GB.
_KEPT: Final = 2


class Timeline:
    """The lanes of a profile by id (``d0``, ``h3``) and the names of their slices."""

    def __init__(self, profile: Profile) -> None:
        read_into_files(profile)
        self.profile = profile
        #: The pictures that were kept when the profile was viewed before; None if there are none.
        self.first = kept(profile)
        self.names = Names([] if self.first is None else self.first.names)
        processes = profile.trace["processes"].unique("process", keep="first", maintain_order=True)
        self._titles: dict[int, str] = {}
        for row in processes.to_dicts():
            rank = row.get("rank")
            said = [row.get("name"), None if rank is None else f"rank {rank}"]
            words = ", ".join(str(part) for part in said if part) or f"process {row['process']}"
            self._titles[row["process"]] = words
        counts = Counter(self._titles.values())
        for process, words in self._titles.items():
            if counts[words] > 1:  # python3, for two processes
                self._titles[process] = f"{words}, process {process}"

    @once
    def device(self) -> list[Lane]:
        """The lanes of devices; provisional until ``settle`` is called."""
        lanes = device_lanes(self.profile, self.names, self._title)
        hand_back()
        return lanes

    @once
    def host(self) -> list[Lane]:
        """The lanes of the host."""
        lanes = host_lanes(self.profile, self.names, self._title)
        let_go()
        hand_back()
        return lanes

    def settle(self) -> None:
        """Give the kernels of provisional lanes the categories of their ops, once the ops are known."""
        if not any(lane.provisional for lane in self.device):
            return
        with lock_of(self, "categories"):
            if not any(lane.provisional for lane in self.device):
                return  # another thread has done it meanwhile
            categories = all_kinds(self.profile)
            # callers that have the earlier lanes continue with them; these lanes still say that they are
            # provisional
            self.__dict__[DEVICE] = [lane.settled(categories) for lane in self.device]
        let_go()
        hand_back()

    @once
    def busy(self) -> dict[tuple[int, int], tuple[Ints, Ints]]:
        """Return per process and device the starts of its busy times, and the busy time (ns) before each
        and in all; time in which several streams were busy counts once."""
        lanes: dict[tuple[int, int], list[Lane]] = {}
        for lane in self.device:
            about = lane.about
            lanes.setdefault((about.process, about.device or 0), []).append(lane)
        busy_of_lanes = {}
        for key, parts in lanes.items():
            if len(parts) == 1 and len(parts[0].strips) == 1:
                only = parts[0].strips[0]
                busy_of_lanes[key] = only.start, only.before
                continue
            unions = [part.union() for part in parts]
            # merge in pairs: all at once, ten million kernels need 0.5 GB more
            while len(unions) > 1:
                pair = zip(unions.pop(0), unions.pop(0), strict=True)
                unions.append(merged(*map(np.concatenate, pair)))
            start, end = unions.pop()
            before = np.zeros(len(start) + 1, np.int64)
            np.cumsum(end - start, out=before[1:])
            busy_of_lanes[key] = start, before
        return busy_of_lanes

    def part(self, name: str) -> list[tuple[str, Lane]]:
        """Return the ids and lanes of a part of the timeline. Raises BadParameter."""
        if name not in _LETTER:
            raise BadParameter(f"part is {name!r}; it must be {DEVICE} or {HOST}")
        lanes: list[Lane] = getattr(self, name)
        return [(f"{_LETTER[name]}{number}", lane) for number, lane in enumerate(lanes)]

    def lane(self, lane_id: str) -> Lane:
        """Return the lane with this id. Raises BadParameter."""
        for part, letter in _LETTER.items():
            number = lane_id[1:]
            if lane_id[:1] == letter and number.isascii() and number.isdigit() and len(number) < 9:
                lanes: list[Lane] = getattr(self, part)
                if int(number) < len(lanes):
                    return lanes[int(number)]
        raise BadParameter(f"no lane is called {lane_id[:20]!r}")

    def all_lanes(self) -> list[tuple[str, Lane]]:
        """Return the ids and lanes of the whole timeline, the host's first."""
        return [*self.part(HOST), *self.part(DEVICE)]

    def _title(self, process: int) -> str:
        return self._titles.get(process, f"process {process}")


_timelines: LRUCache[Timeline] = LRUCache(_KEPT)


def timeline_of(profile: Profile) -> Timeline:
    """Return the timeline of a profile; those of the last few profiles are kept."""
    # a timeline holds its profile, so no other profile can have the same id
    return _timelines.get(id(profile), lambda: Timeline(profile))
