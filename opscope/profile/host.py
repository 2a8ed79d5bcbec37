"""The host of a Profile: its input pipeline and its processors."""

from __future__ import annotations

from .work import Work


class Host(Work):
    """Data preparation and CPU utilization."""
