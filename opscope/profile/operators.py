"""The operators, modules and call tree of a Profile."""

from __future__ import annotations

from .work import Work


class Operators(Work):
    """Operators, modules, and the tree of calls."""
