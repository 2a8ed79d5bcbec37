"""A stand-in for a framework that is not installed: every submodule and every attribute exists, as a class.

An adapter's module can be imported with it, so that what needs no framework is tested for every adapter.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType


class _Lenient(type):
    """Its classes have every attribute, another such class."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(cls, name)


def _made(owner, name):
    made = _Lenient(name, (), {"__init__": lambda self, *_, **__: None})
    type.__setattr__(owner, name, made) if isinstance(owner, type) else vars(owner).update(
        {name: made}
    )
    return made


class _Module(ModuleType):
    """It counts what is replaced in it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(self, name)

    def __setattr__(self, name, value):
        if not isinstance(value, ModuleType) and not name.startswith("__"):
            changed.append(f"{self.__name__}.{name}")
        super().__setattr__(name, value)


#: The attributes of the stand-in's modules that somebody has set.
changed: list[str] = []


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``name`` and everything below it."""

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version

    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] == self.name:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        vars(module).update(__version__=self.version, __file__=__file__)


def put(name: str, version: str) -> None:
    """Let ``import name`` find the stand-in of that version, whether or not the framework is installed."""
    sys.meta_path.insert(0, Finder(name, version))
