"""The interface of a backend: a way to record a program, the data it gives, and whether it works here.

A backend is one module or package with one object of a class derived from ``Backend``, named in the
entry-point group ``opscope.backends`` (``known.py``). docs/backends.md adds one from another package.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from opscope.core.capture.session import Capture

from .machine import Machine
from .window import Bounds


class Auto(enum.Enum):
    """Whether the choice ``auto`` may take a backend that works."""

    #: yes, unless a better one works
    NOW = "now"
    #: not yet: ``opscope run`` begins it once the program uses the device that it records (``when_used``)
    LATER = "later"
    #: only if the user names it
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a backend works here, why or why not, and what to do if it does not.

    ``why`` is a clause that can follow the backend's name and a colon. ``advice`` is empty if nothing helps.
    """

    works: bool
    why: str
    advice: str = ""
    auto: Auto = Auto.NOW


class Backend(ABC):
    """One way to record a program. The object is made at import, so its module must import fast."""

    #: The name on the command line, and the entry point's.
    name: ClassVar[str]
    #: What it records beyond the recorder alone, in a word or two: "kernels".
    gives: ClassVar[str]
    #: ``auto`` takes the highest that works. opscope's own: emit 100, nsys 90, kineto 70, xplane 60,
    #: mindspore 50, cupti 40, recorder 0.
    rank: ClassVar[int]
    #: Whether it starts the program under a tool (``wrap``), like nsys; then it cannot begin inside a
    #: process.
    around: ClassVar[bool] = False
    #: Whether a tool outside the process records, so that there is no capture object in the process.
    outside: ClassVar[bool] = False
    #: Python source of a small program that uses what it records, for the self-test of ``opscope doctor``.
    sample: ClassVar[str] = ""
    #: Whether it records a GPU's work, which is otherwise missing from the recording.
    gpu: ClassVar[bool] = False

    @abstractmethod
    def available(self, machine: Machine) -> Availability:
        """Say whether it works. Cheap: this imports no framework and calls no driver."""

    def capture(self, folder: Path, bounds: Bounds) -> Capture:
        """Return a capture into ``folder``, not yet started, whose window ends at ``bounds``.

        Its ``start`` raises SessionError if the backend cannot record after all; then the next best is
        tried. It records ranges too (``core.capture.recorder_sink.Recorder``; ``backends/beside.py`` is a
        base class for a profiler beside that). Not called where ``around`` or ``outside`` is set.
        """
        raise NotImplementedError(f"{self.name} makes no capture in a process")

    def wrap(self, command: Sequence[str], target: Path, *, force: bool) -> list[str]:
        """Return the command that runs ``command`` under the tool, for a backend with ``around``.

        ``target`` is the profile's path, from which the name of the tool's file follows; ``force`` replaces
        that file. Raises ValueError with a reason.
        """
        raise NotImplementedError(f"{self.name} runs no command")

    def missing(self, trace: Any) -> str | None:
        """Return what part of ``sample`` is missing from its recording (a ``core.tables.trace.Trace``); None
        if nothing.

        Steps and ranges are checked elsewhere.
        """
        return None

    def in_use(self) -> bool:
        """Whether this process uses the device or framework that the backend records, so that its capture may
        begin.

        ``opscope run`` does not begin a capture earlier, because initialising CUDA or JAX makes choices that
        belong to the program. By default the capture begins at once.
        """
        return True

    def when_used(self, function: Callable[[], None]) -> None:
        """Call ``function`` once ``in_use`` becomes true. Called before the program begins."""
        return  # by default the device is in use from the start

    def __repr__(self) -> str:
        return f"<backend {self.name}>"
