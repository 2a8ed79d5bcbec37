"""The contract of an adapter: which versions it is for, how it is installed, and undone."""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from opscope.core.capture.emit import Emitter


class AdapterError(RuntimeError):
    """A framework that was asked for cannot be observed; the message says why."""


@dataclass(frozen=True, slots=True)
class Options:
    """What ``opscope.init()`` was asked to see."""

    shapes: bool = True
    source: bool = True
    layers: bool = True
    steps: bool = True
    #: Allocations too, which costs more: off unless asked for.
    memory: bool = False


class Adapter(ABC):
    """One framework, as the entry-point group ``opscope.adapters`` names it.

    The class says what it needs; an instance is made once the framework is imported and fits. What an
    adapter hooks runs in the user's program: a fault of its own ends in ``failed``, never in the program.
    """

    #: The framework's top-level module, as the entry point is called; the NVTX domain is ``opscope.<name>``.
    name: ClassVar[str]
    #: What users call it.
    title: ClassVar[str]
    #: The module whose import makes the adapter installable: the framework's own, or one within it.
    module: ClassVar[str]
    #: PEP 440 specifier of the supported versions.
    requires: ClassVar[str]

    #: A fault of ours was met; nothing is observed any more.
    broken: bool = False

    @classmethod
    def check_version(cls) -> None:
        """Raises AdapterError where the framework, which is imported, is of no supported version.

        It is asked before the adapter is made, so before anything is hooked.
        """
        # packaging is slow to import, and a program without a framework needs none of it
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion, Version

        text = str(getattr(sys.modules[cls.module.partition(".")[0]], "__version__", ""))
        try:
            version = Version(text)
        except InvalidVersion:
            raise AdapterError(f"{cls.name} has no version that can be read: {text!r}") from None
        if not SpecifierSet(cls.requires).contains(version, prereleases=True):
            raise AdapterError(f"{cls.name} {text} is not supported (needs {cls.requires})")

    @classmethod
    def prepare(cls, options: Options) -> None:
        """Build what ``options`` will need, before the program's first op. Where that fails, nothing is
        said: ``install`` says it."""
        return  # most have nothing to build

    @classmethod
    def build(cls) -> Iterator[Path]:
        """Build all that is compiled for this adapter, and name it. Raises RuntimeError where that fails."""
        return iter(())

    @abstractmethod
    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the framework as far as ``emitter.active`` asks for; harmless when called twice.

        Raises only where nothing was hooked yet.
        """

    @abstractmethod
    def listen(self) -> None:
        """``emitter.active`` may have changed: hook or unhook accordingly. Never raises."""

    @abstractmethod
    def uninstall(self) -> None:
        """Restore everything; harmless when called twice or before ``install``."""

    def failed(self, what: str) -> None:
        """Called in an ``except``: say ``what`` failed, once, and take the adapter out of the user's way."""
        if self.broken:
            return
        self.broken = True
        log = logging.getLogger(type(self).__module__)
        log.exception("opscope: %s; %s is no longer observed", what, self.title)
        try:
            self.withdraw()
        except Exception:
            log.exception("opscope: not every hook of %s could be taken away", self.title)

    def withdraw(self) -> None:
        """Take the hooks away after a fault, perhaps from within one of them: all, unless overridden."""
        self.uninstall()
