"""The vocabulary: one unit and one meaning for each column name in all frames, by subject a file.

Every module here has ``BY_UNIT``: the meanings of names, by unit. A name may stand in one module only.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from opscope.core.question.column import UNITS, Column


def _words() -> Iterator[Column]:
    known: dict[str, str] = {}
    for module in pkgutil.iter_modules(__path__):
        by_unit = import_module(f"{__name__}.{module.name}").BY_UNIT
        for unit, meanings in by_unit.items():
            if unit not in UNITS:
                raise TypeError(f"{module.name}: {unit!r} is no unit")
            for name, meaning in meanings.items():
                if known.setdefault(name, module.name) != module.name:
                    raise TypeError(f"{name!r} is a word of both {known[name]} and {module.name}")
                yield Column(name, unit, meaning)


#: The vocabulary: the unit and meaning of a column name in every frame that does not override it.
WORDS: Final[Mapping[str, Column]] = MappingProxyType({word.name: word for word in _words()})


def columns(names: str, **otherwise: tuple[str, str]) -> tuple[Column, ...]:
    """Return the columns with these space-separated names, as defined in ``WORDS``.

    ``otherwise`` gives (unit, meaning) for names that ``WORDS`` lacks or that mean something else here.
    Raises KeyError for a name in neither.
    """
    return tuple(
        Column(name, *otherwise[name]) if name in otherwise else WORDS[name]
        for name in names.split()
    )
