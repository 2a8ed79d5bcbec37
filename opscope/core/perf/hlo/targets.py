"""Models of HLO's custom calls to libraries that have their own modules, by the name of the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opscope.core.perf.registry import Model

TARGETS: Final[dict[str, Model]] = {}


def target(*names: str) -> Callable[[Model], Model]:
    """Register a model for custom calls to the named functions."""

    def register(model: Model) -> Model:
        for name in names:
            TARGETS[name] = model
        return model

    return register
