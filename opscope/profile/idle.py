"""What lies between the kernels of a Profile."""

from __future__ import annotations

from .work import Work


class Idle(Work):
    """Idle time, launches, queues, copies and sequences of kernels."""
