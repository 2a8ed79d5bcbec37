"""The contract of an adapter: declared versions, reversible installation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from opscope.core.capture.emit import Emitter


@dataclass(frozen=True, slots=True)
class Options:
    """What ``opscope.init()`` was asked to see."""

    shapes: bool = True
    source: bool = True
    layers: bool = True
    steps: bool = True
    #: Allocations too, which costs more: off unless asked for.
    memory: bool = False


class Adapter(Protocol):
    """One framework. Found by the entry-point group ``opscope.adapters``."""

    name: ClassVar[str]
    #: The module whose import makes the adapter installable.
    module: ClassVar[str]
    #: PEP 440 specifier of the supported versions, checked before ``install`` is called.
    requires: ClassVar[str]

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the framework as far as ``emitter.active`` asks for; harmless when called twice.

        Raises only where nothing was hooked yet.
        """

    def listen(self) -> None:
        """``emitter.active`` may have changed: hook or unhook accordingly. Never raises."""

    def uninstall(self) -> None:
        """Restore everything; harmless when called twice or before ``install``."""
