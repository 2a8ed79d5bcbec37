"""Counters of each kernel by CUPTI's range profiler: kernels run alone, once for each pass."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from . import calls, choice
from .calls import CountersRefused, Library, room
from .host import Host, availability, chip

#: The most kernels that one recording measures.
MOST: Final = 10_000
#: Kernels that CUPTI has room for; then their values are taken out, and it begins anew, which takes 2 ms.
#: More room makes each kernel slower: with 12 counters on an H200, a kernel takes 26 ms with room for 16, 33
#: with 64, 60 with 256 and 600 with 4,096, whose image is 920 MB.
CYCLE: Final = 32


@dataclass(frozen=True, slots=True)
class Measured:
    """The results, one entry per kernel, in the order of the launches.

    ``ranges``: CUPTI's names of the ranges (numbers), ``values``: for each range its counters in the order of
    ``names``; ``dropped``: kernels for which there was no room.
    """

    names: tuple[str, ...]
    ranges: list[str]
    values: list[list[float]]
    dropped: int

    def in_order(self) -> list[list[float]]:
        """Return the values in the order of the numbers that name the ranges; unsorted if the names are
        not numbers."""
        if not all(name.isdecimal() for name in self.ranges):
            return self.values
        order = sorted(range(len(self.ranges)), key=lambda index: int(self.ranges[index]))
        return [self.values[index] for index in order]


class RangeProfiler:
    """Measures counters ``names`` of every kernel that a CUDA context launches from ``start`` to ``stop``.

    There is room for ``most`` kernels; ``start`` after ``stop`` begins anew. ``left_out`` are counters that
    the device does not have. ``context`` is a ``CUcontext``, which must be current in the calling thread.
    Raises CountersRefused, also where no counter is left.
    """

    def __init__(
        self,
        library: Library,
        context: int,
        names: Sequence[str],
        device: int = 0,
        most: int = CYCLE,
    ) -> None:
        self._library, self._most = library, most
        self._object: Any = None
        image = availability_of(library, context, device)
        present = choice.present(library, calls.RANGES, *image, names)
        self.names, self.left_out = present.names, present.left_out
        self._host = Host(library, calls.RANGES, *image, self.names)
        try:
            enabled = library.call(calls.RANGE_ENABLE, ctx=context)
            self._object = enabled.pRangeProfilerObject
            size = library.call(
                calls.RANGE_DATA_SIZE,
                pRangeProfilerObject=self._object,
                pMetricNames=ctypes.addressof(self._host.array),
                numMetrics=len(self.names),
                maxNumOfRanges=most,
                maxNumRangeTreeNodes=most,
            ).counterDataSize
            self._image = room(size)
        except BaseException:  # after Ctrl-C too: clean up, then let it continue
            self.close()
            raise

    @property
    def passes(self) -> int:
        """How many times each kernel runs."""
        return self._host.passes

    def start(self) -> None:
        """Begin to measure. Raises CountersRefused."""
        self._clear()
        config = self._host.config
        self._library.call(
            calls.RANGE_CONFIG,
            pRangeProfilerObject=self._object,
            configSize=len(config),
            pConfig=ctypes.addressof(config),
            counterDataImageSize=len(self._image),
            pCounterDataImage=ctypes.addressof(self._image),
            range=calls.AUTO_RANGE,
            replayMode=calls.KERNEL_REPLAY,
            maxRangesPerPass=self._most,
            numNestingLevels=1,
            minNestingLevel=1,
            passIndex=0,
            targetNestingLevel=1,
        )
        self._library.call(calls.RANGE_START, pRangeProfilerObject=self._object)

    def stop(self) -> Measured:
        """Stop, and return what was measured. Raises CountersRefused."""
        stopped = self._library.call(calls.RANGE_STOP, pRangeProfilerObject=self._object)
        if not stopped.isAllPassSubmitted:
            raise CountersRefused("the program ended before all passes of its last kernel had run")
        done = self._library.call(calls.RANGE_DECODE, pRangeProfilerObject=self._object)
        where = {
            "pCounterDataImage": ctypes.addressof(self._image),
            "counterDataImageSize": len(self._image),
        }
        count = int(self._library.call(calls.RANGE_COUNT, **where).numTotalRanges)
        if count > self._most:
            raise CountersRefused(
                f"CUPTI reports {count:,} ranges, more than the limit of {self._most:,}"
            )
        ranges, values = [], []
        for index in range(count):
            named = self._library.call(
                calls.RANGE_NAME, **where, rangeIndex=index, rangeDelimiter=b"/"
            )
            ranges.append((named.rangeName or b"").decode("utf-8", "replace"))
            values.append(self._host.values(self._image, index))
        return Measured(self._host.names, ranges, values, int(done.numOfRangeDropped))

    def close(self) -> None:
        """Give the profiler back. A second call does nothing."""
        profiler, self._object = self._object, None
        try:
            if profiler:
                self._library.call(calls.RANGE_DISABLE, pRangeProfilerObject=profiler)
        finally:
            self._host.close()

    def _clear(self) -> None:
        self._library.call(
            calls.RANGE_DATA,
            pRangeProfilerObject=self._object,
            counterDataSize=len(self._image),
            pCounterData=ctypes.addressof(self._image),
        )


def availability_of(library: Library, context: int, device: int) -> tuple[bytes, Any]:
    """Return the chip's name and the image of the counters that it has."""
    name = chip(library, device)
    return name, availability(library, calls.AVAILABILITY, ctx=context)
