"""The frames that a Profile returns, by subject a file; every module here has a generator ``frames``."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from opscope.core.question.column import Frame


def _frames() -> Iterator[Frame]:
    for module in pkgutil.iter_modules(__path__):
        yield from import_module(f"{__name__}.{module.name}").frames()


#: Every frame that a Profile returns, by the call that returns it.
FRAMES: Final[Mapping[str, Frame]] = MappingProxyType({frame.call: frame for frame in _frames()})
