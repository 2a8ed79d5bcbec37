"""CUPTI's host side: turns names of counters into a configuration, and a counter image into numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from . import calls
from .calls import CountersRefused, Library, room, texts


class Host:
    """A configuration of counters for one chip. ``close`` frees it."""

    def __init__(
        self, library: Library, kind: int, chip: bytes, availability: Any, names: Sequence[str]
    ) -> None:
        if not names:
            raise CountersRefused("no counter is named")
        self._library = library
        self.names, self.array = tuple(names), texts(names)
        self._kept = availability
        begun = library.call(
            calls.HOST_INITIALIZE,
            profilerType=kind,
            pChipName=chip,
            pCounterAvailabilityImage=ctypes.addressof(availability),
        )
        self._object = begun.pHostObject
        self._values = (ctypes.c_double * len(self.names))()
        try:
            library.call(
                calls.ADD_METRICS,
                pHostObject=self._object,
                ppMetricNames=ctypes.addressof(self.array),
                numMetrics=len(self.names),
            )
            size = library.call(calls.CONFIG_SIZE, pHostObject=self._object).configImageSize
            self.config = room(size)
            where = ctypes.addressof(self.config)
            library.call(
                calls.CONFIG, pHostObject=self._object, configImageSize=size, pConfigImage=where
            )
            passes = library.call(calls.PASSES, configImageSize=size, pConfigImage=where)
            self.passes = int(passes.numOfPasses)
        except BaseException:  # after Ctrl-C too: clean up, then let it continue
            self.close()
            raise

    def values(self, image: Any, index: int) -> list[float]:
        """Return the values of all counters of one range or sample of a counter image."""
        self._library.call(
            calls.EVALUATE,
            pHostObject=self._object,
            pCounterDataImage=ctypes.addressof(image),
            counterDataImageSize=len(image),
            rangeIndex=index,
            ppMetricNames=ctypes.addressof(self.array),
            numMetrics=len(self.names),
            pMetricValues=ctypes.addressof(self._values),
        )
        return list(self._values)

    def close(self) -> None:
        """Free the configuration. A second call does nothing."""
        kernel_host, self._object = self._object, None
        if kernel_host:
            self._library.call(calls.HOST_DEINITIALIZE, pHostObject=kernel_host)


def availability(library: Library, params: type[calls.Params], **where: Any) -> Any:
    """Return the image that says which counters this device has."""
    size = library.call(params, **where).counterAvailabilityImageSize
    image = room(size)
    library.call(
        params,
        **where,
        counterAvailabilityImageSize=size,
        pCounterAvailabilityImage=ctypes.addressof(image),
    )
    return image


def chip(library: Library, device: int) -> bytes:
    """Return CUPTI's name of a device's chip (``GH100``)."""
    library.call(calls.INITIALIZE)
    name = library.call(calls.CHIP_NAME, deviceIndex=device).pChipName
    if not name:
        raise CountersRefused(f"CUPTI does not know the chip of device {device}")
    name_bytes: bytes = name
    return name_bytes
