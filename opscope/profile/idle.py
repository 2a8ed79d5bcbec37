"""What lies between the kernels of a Profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.device.bandwidth import bandwidth, bandwidth_curve
from opscope.core.analysis.device.device_work import DeviceWork, device_work
from opscope.core.analysis.device.idle import KERNEL_WAIT, By, idle
from opscope.core.analysis.device.idle_ops import idle_ops
from opscope.core.analysis.device.idle_steps import idle_steps
from opscope.core.analysis.device.launch_delays import launch_statistics, short_launches
from opscope.core.analysis.device.op_sequences import op_sequences
from opscope.core.analysis.device.overlaps import overlaps
from opscope.core.analysis.device.queues import queue_curve, queues
from opscope.core.analysis.device.sequences import LONGEST, sequences
from opscope.core.once import once
from opscope.core.tables.columns import hand_back

from .base import selectable
from .work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Idle(Work):
    """Idle time, launches, queues, copies and sequences of kernels."""

    @once
    def _device_work(self) -> DeviceWork:
        work = device_work(self._ops)
        hand_back()  # of a million kernels, what making it took is 0.05 GB
        return work

    @selectable
    def idle(
        self, by: By = "device", *, kernel_wait: int = KERNEL_WAIT, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """Idle time of each ``device``, or of each ``stream``, by what the next work waited for.

        A gap is *host wait* if the launch of what ends it came after the work before it had ended; else
        *kernel wait* if it is shorter than ``kernel_wait`` ns; else *other*. Busy and idle time add up
        to the window, and the kinds to the idle time. Empty without work on a GPU.
        """
        name = f"idle {by} {kernel_wait}"
        return self._given(name, lambda: idle(self._device_work, by, kernel_wait))

    @selectable
    def idle_steps(self, *, kernel_wait: int = KERNEL_WAIT, **where: Unpack[Where]) -> pl.DataFrame:
        """Idle time of each device in each step, by what the next work waited for.

        The step's time on the host is its busy and its idle time; a gap counts with its part inside the step.
        """
        name = f"idle_steps {kernel_wait}"
        return self._given(
            name, lambda: idle_steps(self.attribution, self._device_work, kernel_wait)
        )

    @selectable
    def idle_ops(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What the host did while a device waited for it: the ops in which most of the host wait lies.

        The times add up to the ``host_wait`` of all devices.
        """
        return self._given("idle_ops", lambda: idle_ops(self._ops, self._device_work))

    @selectable
    def launches(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How long launch calls take, and how long after them the work starts, with percentiles.

        A call that launches a CUDA graph is one launch.
        """
        return self._given(
            "launches", lambda: launch_statistics(self._device_work, self.trace["memops"])
        )

    @selectable
    def short_launches(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The kernels that ran shorter than the call that launched them, by the time of those calls."""
        return self._given("short_launches", lambda: short_launches(self._ops, self._device_work))

    @selectable
    def queue(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How many launches wait on each stream, and how long calls stalled because it was full.

        A stream holds 1,024 launches.
        """
        return self._given("queue", lambda: queues(self._device_work))

    @selectable
    def queue_curve(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How many launches wait on each stream over time, at most 4,000 points a stream.

        The points that are left out lie between those that stay: maxima and minima are kept.
        """
        return self._given("queue_curve", lambda: queue_curve(self._device_work))

    @selectable
    def bandwidth(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bytes and the bandwidth of copies and sets, by direction and kind of memory."""
        return self._given("bandwidth", lambda: bandwidth(self.trace["memops"]))

    @selectable
    def bandwidth_curve(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The bandwidth of each kind of copy over time, at most 4,000 points a kind and device."""
        return self._given("bandwidth_curve", lambda: bandwidth_curve(self.trace["memops"]))

    @selectable
    def sequences(self, *, longest: int = LONGEST, **where: Unpack[Where]) -> pl.DataFrame:
        """The sequences of kernels that a stream runs again and again, by time: what a fusion would join.

        Each is of 2 to ``longest`` kernels, copies or sets of one layer and direction, as far as the trace
        shows these. The 100 with most time are returned. No kernel is in two of them.
        """
        return self._given(
            f"sequences {longest}", lambda: sequences(self._ops, self._device_work, longest)
        )

    @selectable
    def op_sequences(
        self, op: str | None = None, *, least: int = 2, **where: Unpack[Where]
    ) -> pl.DataFrame:
        """What each op runs on the device, as a sequence of at least ``least`` kernels, by occurrences.

        Of the ops whose name contains ``op``, the outermost count; without ``op``, all outermost ops.
        """
        return self._given(
            f"op_sequences {op!r} {least}",
            lambda: op_sequences(self._ops, self._device_work, op, least),
        )

    @selectable
    def overlap(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time in which computation, communication and copies ran alone, in pairs, and all three.

        The rows of a device add up to the time in which it was busy.
        """
        return self._given("overlap", lambda: overlaps(self._device_work))
