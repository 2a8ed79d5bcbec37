"""Counters of a whole device over time (PM sampling): no kernel is run again, and kernels are not
distinguished."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from . import calls, choice
from .calls import Library, room
from .host import Host, availability, chip

#: Bytes of the device's own buffer, and samples that one image holds: a sample of a counter of all SMs takes
#: 21 kB of it (of sm__pipe_tensor_cycles_active, on an H200).
BUFFER: Final = 64 << 20
SAMPLES: Final = 2_000
#: The unit of the interval is ns of the GPU's time (CUpti_PmSampling_TriggerMode).
_BY_TIME: Final = 1
_FULL: Final = 1


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples in order: start and end (ns, CUPTI's clock) and the values in the order of ``names``.

    ``lost``: whether the device's buffer overflowed, so that samples are missing.
    """

    names: tuple[str, ...]
    start: list[int]
    end: list[int]
    values: list[list[float]]
    lost: bool


class PmSampler:
    """Samples counters ``names`` of a device every ``interval`` ns. Raises CountersRefused.

    The counters must fit in one pass, because a moment cannot be measured twice: ``left_out`` are those that
    do not fit, or that the device cannot sample; with none left CountersRefused is raised.
    """

    def __init__(
        self,
        library: Library,
        names: Sequence[str],
        device: int = 0,
        interval: int = 100_000,
        samples: int = SAMPLES,
    ) -> None:
        self._library = library
        self._object: Any = None
        name = chip(library, device)
        image = availability(library, calls.PM_AVAILABILITY, deviceIndex=device)
        chosen = choice.in_one_pass(library, name, image, names)
        self.names, self.left_out = chosen.names, chosen.left_out
        self._host = Host(library, calls.SAMPLES, name, image, self.names)
        self._found = Samples(self._host.names, [], [], [], False)
        self._lost = False
        try:
            enabled = library.call(calls.PM_ENABLE, deviceIndex=device)
            self._object = enabled.pPmSamplingObject
            config = self._host.config
            library.call(
                calls.PM_CONFIG,
                pPmSamplingObject=self._object,
                configSize=len(config),
                pConfig=ctypes.addressof(config),
                hardwareBufferSize=BUFFER,
                samplingInterval=interval,
                triggerMode=_BY_TIME,
            )
            size = library.call(
                calls.PM_DATA_SIZE,
                pPmSamplingObject=self._object,
                pMetricNames=ctypes.addressof(self._host.array),
                numMetrics=len(self.names),
                maxSamples=samples,
            ).counterDataSize
            self._image = room(size)
        except BaseException:  # after Ctrl-C too: clean up, then let it continue
            self.close()
            raise

    @property
    def held(self) -> int:
        """How many samples have been taken out so far."""
        return len(self._found.start)

    def start(self) -> None:
        """Begin to sample. Raises CountersRefused."""
        self._library.call(calls.PM_START, pPmSamplingObject=self._object)

    def drain(self) -> None:
        """Take the available samples out of the device's buffer; call it often enough."""
        for _ in range(1000):  # a device that never ends its records must not block the program
            self._library.call(
                calls.PM_DATA,
                pPmSamplingObject=self._object,
                counterDataSize=len(self._image),
                pCounterData=ctypes.addressof(self._image),
            )
            where = {
                "pCounterDataImage": ctypes.addressof(self._image),
                "counterDataImageSize": len(self._image),
            }
            done = self._library.call(calls.PM_DECODE, pPmSamplingObject=self._object, **where)
            self._lost |= bool(done.overflow)
            samples = int(self._library.call(calls.PM_COUNT, **where).numCompletedSamples)
            for index in range(samples):
                when = self._library.call(
                    calls.PM_SAMPLE, pPmSamplingObject=self._object, **where, sampleIndex=index
                )
                self._found.start.append(int(when.startTimestamp))
                self._found.end.append(int(when.endTimestamp))
                self._found.values.append(self._host.values(self._image, index))
            if done.decodeStopReason != _FULL:
                return

    def stop(self) -> Samples:
        """Stop, and return all samples. Raises CountersRefused."""
        self._library.call(calls.PM_STOP, pPmSamplingObject=self._object)
        self.drain()
        samples = self._found
        return Samples(samples.names, samples.start, samples.end, samples.values, self._lost)

    def close(self) -> None:
        """Give the sampler back. A second call does nothing."""
        sampler, self._object = self._object, None
        try:
            if sampler:
                self._library.call(calls.PM_DISABLE, pPmSamplingObject=sampler)
        finally:
            self._host.close()
