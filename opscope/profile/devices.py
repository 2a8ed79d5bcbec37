"""How well the kernels of a Profile fill the device."""

from __future__ import annotations

from .work import Work


class Devices(Work):
    """The use of the device: utilization, occupancy, launch configurations."""
