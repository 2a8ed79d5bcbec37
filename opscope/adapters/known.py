"""Find the available adapters: those that packages register in the entry-point group ``opscope.adapters``.

The entry point is the only place that names an adapter. opscope's own adapters use it too::

    [project.entry-points."opscope.adapters"]
    abacus = "opscope_abacus:AbacusAdapter"

The entry point's name is the framework's top-level module. The adapter is loaded once that is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from opscope.core import registered

from .base import Adapter

GROUP: Final = "opscope.adapters"
#: The environment variable by which ``opscope run --mode`` reaches the program.
MODE: Final = "OPSCOPE_MODE"


def available() -> dict[str, str]:
    """Return all adapters, framework → import string (``module:class``), without loading any."""
    adapters = registered.entries(GROUP)
    if any(target.startswith(f"{__package__}.") for target in adapters.values()):
        return adapters
    return {**adapters, **registered.of_checkout(GROUP)}


def load(target: str) -> type[Adapter]:
    """Return the class that an import string names.

    Raises AttributeError if its module lacks the class, and whatever importing the module raises.
    """
    module, _, attribute = target.partition(":")
    adapter: type[Adapter] = getattr(import_module(module), attribute)
    return adapter
