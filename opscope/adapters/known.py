"""Which adapters there are: those that packages name in the entry-point group ``opscope.adapters``.

That entry point is the one place where an adapter is known, those of this package included::

    [project.entry-points."opscope.adapters"]
    abacus = "opscope_abacus:AbacusAdapter"

Its name is that of the framework's top-level module: the adapter is loaded once that is imported.
"""

from __future__ import annotations

import importlib.metadata
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from .base import Adapter

GROUP: Final = "opscope.adapters"
_PROJECT: Final = Path(__file__).resolve().parents[2] / "pyproject.toml"


def available() -> dict[str, str]:
    """Every adapter there is: framework → import string (``module:class``). Loads none of them."""
    found = {point.name: point.value for point in importlib.metadata.entry_points(group=GROUP)}
    if any(target.startswith(f"{__package__}.") for target in found.values()):
        return found
    return {**found, **_of_checkout()}


def load(target: str) -> type[Adapter]:
    """The class that an import string names. Raises what its module does, and AttributeError."""
    module, _, attribute = target.partition(":")
    found: type[Adapter] = getattr(import_module(module), attribute)
    return found


def _of_checkout() -> dict[str, str]:
    """The same table where opscope runs from its source tree and is not installed: no metadata has it."""
    if not _PROJECT.is_file():
        return {}
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project: Any = toml.loads(_PROJECT.read_text(encoding="utf-8"))
    points: dict[str, str] = project["project"]["entry-points"][GROUP]
    return points
