"""Take the entries of a snapshot's history into columns while the file is read, without keeping objects."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.readers.pickle_values import Record

from .stacks import Stacks

Note = tuple[str, str, int]
#: The effect of an action: on memory in use (an allocation 1, a release -1), and on reserved memory.
_ACTIONS: Final = (
    "alloc",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
)
_IN_USE: Final = (1, -1, 0, 0, 0, 0)
_RESERVED: Final = (0, 0, 1, -1, 1, -1)
#: Actions that change neither: a requested release, a snapshot, a failed allocation.
_NO_CHANGE: Final = ("free_requested", "snapshot", "oom", "workspace_snapshot")
_OTHER: Final = len(_ACTIONS)
_OUT_OF_MEMORY: Final = len(_ACTIONS) + 1
_ODD: Final = len(_ACTIONS) + 2
_CODES: Final = {
    **{action: code for code, action in enumerate(_ACTIONS)},
    **dict.fromkeys(_NO_CHANGE, _OTHER),
    "oom": _OUT_OF_MEMORY,
}
_NO_TIME: Final = -1
#: Larger times (us) and sizes are invalid.
_MOST: Final = 1 << 51


class History:
    """The entries of all devices, in the order of the file."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._action = array("b")
        self._address, self._size, self._time = (array("q") for _ in range(3))
        self._stack = array("i")

    def take(self, record: Record) -> bool:
        """Take an entry of a history; False for any other dictionary."""
        action = record.get("action")
        if action is None or not isinstance(action, str):
            return False
        address = record.get("device_free", record.get("addr", 0))
        size: Any = record.get("size")
        time: Any = record.get("time_us", _NO_TIME)
        code = _CODES.get(action, _ODD)
        if not (
            _fits(address, 1 << 62)
            and _fits(size, _MOST)
            and (time == _NO_TIME or _fits(time, _MOST))
        ):
            code, address, size, time = _ODD, 0, 0, 0
        self._action.append(code)
        self._address.append(address)
        self._size.append(size)
        self._time.append(time)
        self._stack.append(self._stacks.number(record.get("frames")))
        return True

    def changes(self, lengths: Sequence[int], notes: list[Note]) -> pl.DataFrame:
        """Return device, time (ns), address, bytes (negative: released), grown (reserved bytes) and stack of
        each change; ``lengths``: how many entries each device has, in order. Appends to ``notes``."""
        count = len(self._action)
        device = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[:count]
        if len(device) < count:  # entries outside the lists of the devices belong to no device
            device = np.append(device, np.full(count - len(device), -2, np.int32))
        action = np.frombuffer(self._action, np.int8) if count else np.zeros(0, np.int8)
        size, address, time = (
            np.frombuffer(column, np.int64) if count else np.zeros(0, np.int64)
            for column in (self._size, self._address, self._time)
        )
        time = self._times(time, notes)
        self._note(action, device, size, address, notes)
        kept = np.flatnonzero((action < _OTHER) & (device >= 0) & (time != _NO_TIME))
        signs = action[kept]
        stack = np.frombuffer(self._stack, np.int32)[kept] if count else np.zeros(0, np.int32)
        texts = pl.Series("texts", self._stacks.texts, pl.String)
        numbers = pl.Series("stack", stack).replace(-1, None).cast(pl.UInt32)
        return pl.DataFrame(
            {
                "device": device[kept],
                "time": time[kept] * 1000,
                "address": address[kept],
                "bytes": size[kept] * np.array(_IN_USE, np.int64)[signs],
                "grown": size[kept] * np.array(_RESERVED, np.int64)[signs],
                "stack": texts.cast(pl.Categorical).gather(numbers),
            }
        )

    @property
    def timed(self) -> bool:
        """Whether any entry has a time."""
        return any(time != _NO_TIME for time in self._time)

    def _times(self, time: Any, notes: list[Note]) -> Any:
        """Return the times (us); a history without times uses the entries' numbers."""
        lacking = int((time == _NO_TIME).sum())
        if lacking and lacking == len(time):
            message = (
                "entries of the memory history, which has no times: each stands for a microsecond"
            )
            notes.append(("warning", message, lacking))
            return np.arange(len(time), dtype=np.int64)
        if lacking:
            notes.append(
                ("warning", "entries of the memory history without a time, left out", lacking)
            )
        return time

    def _note(self, action: Any, device: Any, size: Any, free: Any, notes: list[Note]) -> None:
        """Add notes on entries that were left out, and on failed allocations."""
        odd = int(((action == _ODD) | (device < 0)).sum())
        if odd:
            notes.append(
                ("warning", "entries of the memory history that cannot be read, left out", odd)
            )
        failed = np.flatnonzero(action == _OUT_OF_MEMORY)
        if len(failed):
            last = failed[-1]
            notes.append(
                (
                    "warning",
                    f"allocations failed: out of memory (the last asked device {device[last]} for "
                    f"{size[last]:,} bytes, of which the device had {free[last]:,} free)",
                    len(failed),
                )
            )


def _fits(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value < most
