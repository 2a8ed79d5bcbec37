"""Find the questions: every module of ``questions`` defines one."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from . import questions as folder
from .question import Question


@cache
def questions() -> Mapping[str, Question]:
    """Return every question by its name. Raises TypeError for a module that defines none."""
    records = {}
    for module in pkgutil.iter_modules(folder.__path__):
        module_name = f"{folder.__name__}.{module.name}"
        record = getattr(import_module(module_name), "QUESTION", None)
        if not isinstance(record, Question) or record.name != module.name:
            raise TypeError(f"{module_name} defines no QUESTION named {module.name!r}")
        records[record.name] = record
    return MappingProxyType(records)
