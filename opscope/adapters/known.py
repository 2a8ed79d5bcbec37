"""Find the available adapters: those that packages register in the entry-point group ``opscope.adapters``.

The entry point is the only place that names an adapter. opscope's own adapters use it too::

    [project.entry-points."opscope.adapters"]
    abacus = "opscope_abacus:AbacusAdapter"

The entry point's name is the framework's top-level module. The adapter is loaded once that is imported.
"""

from __future__ import annotations

import importlib.metadata
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from .base import Adapter

GROUP: Final = "opscope.adapters"
#: The environment variable by which ``opscope run --mode`` reaches the program.
MODE: Final = "OPSCOPE_MODE"
_PROJECT: Final = Path(__file__).resolve().parents[2] / "pyproject.toml"


def available() -> dict[str, str]:
    """Return all adapters, framework → import string (``module:class``), without loading any."""
    found = {point.name: point.value for point in importlib.metadata.entry_points(group=GROUP)}
    if any(target.startswith(f"{__package__}.") for target in found.values()):
        return found
    return {**found, **_of_checkout()}


def load(target: str) -> type[Adapter]:
    """Return the class that an import string names.

    Raises AttributeError if its module lacks the class, and whatever importing the module raises.
    """
    module, _, attribute = target.partition(":")
    found: type[Adapter] = getattr(import_module(module), attribute)
    return found


def _of_checkout() -> dict[str, str]:
    """Return opscope's own adapters from ``pyproject.toml``, in the same form.

    opscope may run from its source tree without being installed; then no metadata names them.
    """
    if not _PROJECT.is_file():
        return {}
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project: Any = toml.loads(_PROJECT.read_text(encoding="utf-8"))
    points: dict[str, str] = project["project"]["entry-points"][GROUP]
    return points
