"""The ``nsys`` backend: Nsight Systems runs the command and records its kernels, and opscope's ranges by
NVTX."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.backends.base import Auto, Availability, Backend
from opscope.backends.machine import Machine

from .where import find

if TYPE_CHECKING:
    from .tool import Tool

SUFFIX: Final = ".nsys-rep"
#: The script that nsys runs in place of the program (``starter.py``).
STARTER: Final = Path(__file__).with_name("starter.py")


class Nsys(Backend):
    """Nsight Systems around the program; needs ``nsys`` and, for kernels, an NVIDIA GPU."""

    name = "nsys"
    gives = "kernels of any program"
    rank = 90
    around = True
    outside = True
    gpu = True

    def available(self, machine: Machine) -> Availability:
        if machine.under_nsys:
            return Availability(False, "Nsight Systems runs this process already")
        if not sys.platform.startswith("linux"):
            return Availability(False, "opscope runs Nsight Systems on Linux only")
        path = find(machine)
        if path is None:
            return Availability(
                False,
                "nsys is not on PATH",
                "install Nsight Systems, or put its folder on PATH",
            )
        if machine.gpu != "nvidia":
            why = machine.no_gpu if machine.gpu is None else "it records NVIDIA's GPUs only"
            return Availability(True, f"nsys is installed: {path}; {why}", auto=Auto.NEVER)
        return Availability(True, f"a GPU is visible, and nsys is installed: {path}")

    def tool(self, machine: Machine) -> Tool:
        """Return the nsys of this machine and its abilities. Raises NoTool with advice."""
        from .tool import (
            NoTool,
            ask,
        )  # lazy: every process of a run asks whether this backend works

        if machine.under_nsys:
            raise NoTool("Nsight Systems already profiles this process: leave out --backend nsys")
        path = find(machine)
        if path is None:
            raise NoTool(
                "nsys is not on PATH; if Nsight Systems is installed elsewhere, put its folder on PATH, or "
                "type: /path/to/nsys profile -t nvtx,cuda -o NAME opscope run -- COMMAND"
            )
        return ask(path, machine.environ)

    def wrap(self, command: Sequence[str], target: Path, *, force: bool) -> list[str]:
        from .command import Wanted, line  # lazy: likewise

        report = target.with_suffix(SUFFIX)
        if report.exists() and not force:
            raise ValueError(f"{report} exists; --force replaces it")
        words = line(self.tool(Machine()), Wanted(), report.absolute().with_suffix("")).words
        return [*words, *command]


NSYS: Final = Nsys()
