"""Unique names for models: a class may have several instances, which come and go."""

from __future__ import annotations

import weakref
from typing import Any, Final

#: The most models of a class that get a name of their own; further ones share the last name.
MAX_ROOTS: Final = 64


class Roots:
    """Gives models their names, without keeping them alive."""

    def __init__(self) -> None:
        self._roots: dict[str, list[weakref.ref[Any]]] = {}

    def name(self, model: Any) -> str:
        """The class's name, with a number from the second live model of the class on: ``Sequential#2``."""
        name = type(model).__name__
        roots = self._roots.setdefault(name, [])
        living = [root() for root in roots]
        at = next((at for at, living_model in enumerate(living) if living_model is model), None)
        if at is None:
            free = (at for at, living_model in enumerate(living) if living_model is None)
            at = next(free, min(len(roots), MAX_ROOTS - 1))
            roots[at : at + 1] = [weakref.ref(model)]
        return name if at == 0 else f"{name}#{at + 1}"
