"""What a run of a Profile had to wait for."""

from __future__ import annotations

from .work import Work


class Critical(Work):
    """The critical path."""
