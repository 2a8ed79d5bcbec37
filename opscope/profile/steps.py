"""The steps of a Profile: what each took and why some took longer."""

from __future__ import annotations

from .work import Work


class Steps(Work):
    """Steps, their parts, and the ranks that are late."""
