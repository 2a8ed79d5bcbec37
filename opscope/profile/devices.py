"""How well the kernels of a Profile fill the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.device.device_use import NEEDED as device_use_needs
from opscope.core.analysis.device.device_use import device_curve, device_use, used_kernels
from opscope.core.analysis.device.fusable import NEEDED, fusable_kernels
from opscope.core.analysis.device.kernel_launches import kernel_launches, kernel_occupancy
from opscope.core.analysis.device.launches import NEEDED as LAUNCHED
from opscope.core.analysis.device.launches import Launches, launches
from opscope.core.analysis.device.short_kernels import (
    SHORT,
    kernel_lengths,
    length_sums,
    short_kernels,
)
from opscope.core.once import once

from .base import selectable
from .work import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Devices(Work):
    """The use of the device: utilization, occupancy, launch configurations."""

    @once
    def _launches(self) -> Launches:
        return launches(self.trace, self._whole._own_columns("kernels", LAUNCHED)[0])

    @selectable
    def device_use(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How each device was used: GPU utilization, SM efficiency, occupancy, Tensor Core time.

        The window is the time from the first step's start until the last step, and what the steps launched,
        has ended; without steps, from the process's first event to its last. SM efficiency and occupancies
        are estimates from how the kernels were launched; they are null, with the reason, if that or the
        device is not known.
        """
        return self._given(
            "device_use",
            lambda: device_use(self.trace, self._windowed, self._launches),
        )

    @selectable
    def device_curve(self, buckets: int = 100, **where: Unpack[Where]) -> pl.DataFrame:
        """The figures of ``device_use`` over time, in equal parts of each device's window.

        Times of all parts add up to those of ``device_use``. Raises ValueError for ``buckets`` less than 1 or
        more than 100,000.
        """
        return self._given(
            f"device_curve {buckets}",
            lambda: device_curve(self.trace, self._windowed, self._launches, buckets),
        )

    @selectable
    def kernel_launches(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Kernels by name and launch configuration: times, occupancy and what limits it, waves, tail."""
        return self._given(
            "kernel_launches",
            lambda: kernel_launches(self._executed, self._launches),
        )

    @selectable
    def kernel_occupancy(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Kernels by name: times, ops, blocks per multiprocessor, occupancy, Tensor Cores."""
        return self._given(
            "kernel_occupancy",
            lambda: kernel_occupancy(self._executed, self.kernel_launches()),
        )

    @selectable
    def kernel_lengths(self, **where: Unpack[Where]) -> pl.DataFrame:
        """How long kernels are: how many, and how much of their time, by ranges of lengths."""
        return self._given("kernel_lengths", lambda: kernel_lengths(length_sums(self._executed)))

    @selectable
    def short_kernels(self, below: int = SHORT, **where: Unpack[Where]) -> pl.DataFrame:
        """The kernels of which some are shorter than ``below`` ns (10 µs), by name; the most first."""
        return self._given(
            f"short_kernels {below}",
            lambda: short_kernels(self._executed, below),
        )

    @selectable
    def fusable_kernels(self, below: int = SHORT, **where: Unpack[Where]) -> pl.DataFrame:
        """Chains of kernels that a fusion would join, by the most that it would save: an estimate.

        A ``pointwise`` chain computes elements from elements; a ``short`` one is of kernels of less than
        ``below`` ns (10 µs) of any kind but communication. They overlap, so their savings do not add up.
        """
        return self._given(f"fusable_kernels {below}", lambda: self._fusable(below))

    @property
    def _windowed(self) -> pl.DataFrame:
        if "kernels" in self._frames or "kernels" in self._stored:
            return self._passing("kernels", device_use_needs)
        return used_kernels(self._ops)

    def _fusable(self, below: int) -> pl.DataFrame:
        device, _ = self.device
        return fusable_kernels(
            self._passing("kernels", NEEDED),
            self.memops(categories=True),
            device.bandwidth if device is not None else None,
            below,
        )
