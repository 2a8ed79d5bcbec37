"""The calls. Each module here defines one as ``CALL``; ``NAMES`` has their order."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from opscope.agents.call import Call

#: The calls in the order of help and lists, each in the module of its name.
NAMES: Final = ("open", "diagnose", "advise", "ask", "source", "diff", "whatif")
_MODULES: Final = {"open": "opening"}


def call(name: str) -> Call:
    """Return the call of this name. Raises KeyError for another."""
    if name not in NAMES:
        raise KeyError(name)
    record = import_module(f"{__package__}.{_MODULES.get(name, name)}").CALL
    assert isinstance(record, Call)
    return record


def calls() -> Iterator[Call]:
    """Yield every call, in their order."""
    yield from map(call, NAMES)
