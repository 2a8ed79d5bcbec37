"""Sample hardware counters of whole devices by time (CUPTI's PM sampling), beside the recorder.

No kernel is run again, and kernels are not distinguished: a value covers all work on the device in an
interval.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from opscope.backends.cupti.api import CuptiError
from opscope.backends.cupti.clocks import OURS, Clocks
from opscope.backends.window import EXACT, Bounds, Window
from opscope.core.capture.session import SessionError
from opscope.core.cupti import counter_files as files

from .calls import FOR_SAMPLES, CountersRefused
from .counting import Counting
from .pm_sampling import PmSampler, Samples

_log = logging.getLogger(__name__)
#: Time between samples (ns): a sample costs some µs of Python's time.
INTERVAL: Final = 1_000_000
#: Samples of all devices that are kept in memory: a quarter of an hour of one device.
MOST: Final = 1_000_000


class SamplingCapture(Counting):
    """Captures ranges with the recorder and samples counters ``names`` of devices, into ``folder``."""

    profiler = "CUPTI's PM sampling"
    calls = FOR_SAMPLES

    def __init__(
        self,
        folder: str | os.PathLike[str],
        names: Sequence[str],
        bounds: Bounds = EXACT,
        path: Path | None = None,
        interval: int = INTERVAL,
    ) -> None:
        super().__init__(folder, names, bounds, path)
        self._interval = interval
        self._clocks: Clocks | None = None
        self._samplers: dict[int, PmSampler] = {}
        self._tried: set[int] = set()

    def _begin(self) -> None:
        assert self._cupti is not None
        self._samplers, self._tried, self._notes = {}, set(), []
        self._clocks = Clocks(self._cupti.timestamp, registered=False)
        try:
            self._clocks.read()
        except CuptiError as error:
            raise SessionError(str(error)) from error
        self._look()
        if self._tried and not self._samplers:  # raise now: later no other way could replace it
            raise SessionError(self._notes[-1])

    def _look(self) -> None:
        """Begin to sample the devices that the program has begun to use."""
        assert self._driver is not None
        assert self._library is not None
        for device in self._driver.in_use():
            if device in self._tried:
                continue
            self._tried.add(device)
            try:
                sampler = PmSampler(self._library, self._names, device, self._interval)
                try:
                    self._agree(sampler, device)
                    sampler.start()
                except BaseException:  # after Ctrl-C too: clean up, then let it continue
                    sampler.close()
                    raise
                self._samplers[device] = sampler
            except CountersRefused as error:
                self._notes.append(f"hardware counters not measured: {error}")
                _log.warning("opscope: %s", self._notes[-1])

    def _agree(self, sampler: PmSampler, device: int) -> None:
        """Make all devices sample the same counters: the requested ones that the first device can sample."""
        for other, one in self._samplers.items():
            if one.names != sampler.names:
                raise CountersRefused(
                    f"device {device} does not have the counters of device {other}"
                )
        if sampler.left_out:
            message = (
                f"counters that cannot be sampled beside the others: {', '.join(sampler.left_out)}"
            )
            if message not in self._notes:
                self._notes.append(message)

    def _tick(self) -> None:
        if self._window is not None and os.getpid() == self._pid:
            assert self._clocks is not None
            try:
                self._look()
                for sampler in self._samplers.values():
                    sampler.drain()
                self._clocks.read()
            except (CountersRefused, CuptiError) as error:
                self._window.over = f"sampling failed: {error}"
        super()._tick()

    def _touch(self) -> bool:
        return False  # CUPTI's own clock is read

    def _settle(self) -> None:
        return  # work that continues is not part of the samples

    def _events(self) -> int:
        return sum(sampler.held for sampler in self._samplers.values())

    def _fills(self, window: Window) -> bool:
        if self._events() >= MOST:
            window.over = f"{MOST:,} samples were taken, and there is no room for more"
        return window.over is not None

    def _end(self, folder: Path | None) -> None:
        samples: dict[int, Samples] = {}
        for device, sampler in self._samplers.items():
            try:
                samples[device] = sampler.stop()
                sampler.close()
            except CountersRefused as error:
                self._notes.append(f"hardware counters of device {device} are lost: {error}")
        self._samplers = {}
        if folder is not None and self._clocks is not None:
            files.write(folder, self._lines(samples, self._clocks))

    def _lines(self, found: dict[int, Samples], clocks: Clocks) -> Iterator[dict[str, Any]]:
        names = next((series.names for series in found.values()), self._names)
        yield {"version": self._version, "counters": list(names)}
        with contextlib.suppress(CuptiError):
            clocks.read()
        times = [time for series in found.values() for time in (series.start[:1] + series.end[-1:])]
        if times and not clocks.choose(min(times), max(times), at_end=True):
            self._notes.append(
                "the samples' times lie outside the recording on every clock that was tried"
            )
        pairs = clocks.take()
        for device, samples in found.items():
            # a value covers the interval that ends at its time
            at = on_clock(samples.end, pairs) if clocks.chosen != OURS else samples.end
            rows = [
                [time, *files.finite(values)]
                for time, values in zip(at, samples.values, strict=True)
            ]
            for some in files.pieces(rows):
                yield {"samples": {"device": device, "rows": some}}
            if samples.lost:
                self._notes.append(
                    f"device {device}: its buffer of samples was full, and some are lost"
                )
        if not found and not self._notes:
            self._notes.append("no device was used: no counters were sampled")
        yield from self._about(list(found))

    def in_child(self) -> bool:
        """Continue in a forked child, where CUDA cannot be used: it is recorded without counters."""
        self._samplers = {}
        return super().in_child()


def on_clock(times: Sequence[int], pairs: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return times (ns) on the recorder's clock, by pairs of readings (theirs, ours, uncertainty)."""
    if not pairs or not times:
        return list(times)
    theirs, ours, _ = np.array(sorted(pairs), np.int64).T
    at = np.array(times, np.int64)
    # the clocks' difference changes by µs an hour: as the distance from the first one, a float holds it
    # exactly
    offset = ours - theirs
    drift = np.interp(at - theirs[0], theirs - theirs[0], offset - offset[0])
    moved: list[int] = (at + offset[0] + np.rint(drift).astype(np.int64)).tolist()
    return moved
