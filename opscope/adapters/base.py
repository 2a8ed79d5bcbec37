"""The base class of all adapters: supported versions, installation and removal."""

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
    """A framework that the user named cannot be observed. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Options:
    """What ``opscope.init()`` was asked to observe."""

    shapes: bool = True
    source: bool = True
    layers: bool = True
    steps: bool = True
    #: Also record allocations. This costs more, so it is off by default.
    memory: bool = False
    #: Whether light mode records slow spells in full, which needs preparation.
    spells: bool = True
    #: The user named the framework: turn on its own profiler too if nothing else records what runs.
    profiler: bool = False


class Adapter(ABC):
    """Observes one framework. Packages register adapters in the entry-point group ``opscope.adapters``.

    The class states its requirements. opscope creates the instance once the framework is imported and
    its version fits. Hooks run in the user's program: an error in a hook must go to ``failed`` and must
    never reach the program.
    """

    #: The framework's top-level module and the entry point's name; the NVTX domain is ``opscope.<name>``.
    name: ClassVar[str]
    #: The framework's name as users write it.
    title: ClassVar[str]
    #: The adapter is installed once this module is imported: the top-level module or a submodule.
    module: ClassVar[str]
    #: PEP 440 specifier of the supported versions.
    requires: ClassVar[str]

    #: True after an error in the adapter's own code; the adapter no longer observes anything.
    broken: bool = False

    @classmethod
    def check_version(cls) -> None:
        """Raise AdapterError if the version of the imported framework is not supported.

        This runs before the adapter is created, so before anything is hooked.
        """
        # imported here because packaging is slow to import and only programs with a framework need it
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion, Version

        module = sys.modules[cls.module.partition(".")[0]]
        text = str(getattr(module, "__version__", "")).partition("-")[0]  # OpenVINO adds its build
        try:
            version = Version(text)
        except InvalidVersion:
            raise AdapterError(f"the version of {cls.name} cannot be read: {text!r}") from None
        if not SpecifierSet(cls.requires).contains(version, prereleases=True):
            raise AdapterError(f"{cls.name} {text} is not supported (needs {cls.requires})")

    @classmethod
    def prepare(cls, options: Options) -> None:
        """Build the native libraries that ``options`` needs, before the program's first op.

        A failed build is not reported here; ``install`` reports it.
        """
        return  # most adapters have nothing to build

    @classmethod
    def build(cls) -> Iterator[Path]:
        """Build every native library of this adapter and yield its path. Raises RuntimeError on failure."""
        return iter(())

    @abstractmethod
    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the framework; set the hooks that a listener needs only if ``emitter.active``.

        A second call does nothing. Raises only if nothing has been hooked yet.
        """

    @abstractmethod
    def listen(self) -> None:
        """Hook or unhook after a possible change of ``emitter.active``. Never raises."""

    @abstractmethod
    def uninstall(self) -> None:
        """Restore everything. May be called twice, or before ``install``."""

    def failed(self, message: str) -> None:
        """Log ``message`` failed, once, and remove the hooks. Call this from an ``except`` block."""
        if self.broken:
            return
        self.broken = True
        log = logging.getLogger(type(self).__module__)
        log.exception("opscope: %s; %s is no longer observed", message, self.title)
        try:
            self.withdraw()
        except Exception:  # an error of ours must not reach the program; it is logged
            log.exception("opscope: some hooks of %s could not be removed", self.title)

    def withdraw(self) -> None:
        """Remove the hooks after an error, possibly while one of them runs. By default removes all."""
        self.uninstall()
