"""The ``cupti`` backend: NVIDIA's CUPTI in the process, which records the kernels of any program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.backends import begins
from opscope.backends.base import Auto, Availability, Backend
from opscope.backends.machine import Machine
from opscope.backends.window import Bounds

from . import driver

if TYPE_CHECKING:
    from .capture import CuptiCapture


class CuptiBackend(Backend):
    """CUPTI in the process beside the recorder, for the kernels of GPU programs of any framework."""

    name = "cupti"
    gives = "kernels"
    rank = 40
    gpu = True

    def available(self, machine: Machine) -> Availability:
        if machine.gpu is None:
            return Availability(False, machine.no_gpu, "the recorder needs none")
        if machine.gpu != "nvidia":
            return Availability(False, "CUPTI records NVIDIA's GPUs, and this is another")
        from . import helper, library  # lazy: most machines have no GPU

        packages = machine.folder("nvidia")
        library_file, why = library.here(
            machine.loaded("torch"),
            machine.environ,
            foreign=machine.foreign,
            packages=() if packages is None else (str(packages.parent), *sys.path),
            root=machine.root,
        )
        if library_file is None:
            return Availability(False, why, why.partition("; ")[2])
        if not helper.can_load():
            return Availability(
                False,
                "its helper in C is not built, and there is no C compiler here",
                "install gcc, or build it elsewhere: opscope build cupti",
            )
        why = f"a GPU is visible, and CUPTI is at {library_file.path}"
        if machine.under_nsys:
            why = "Nsight Systems runs this process, and one tool at a time records kernels"
            return Availability(True, why, auto=Auto.NEVER)
        if machine.loaded("torch") is not None:
            return Availability(
                True, "the program uses PyTorch, whose profiler records it", auto=Auto.LATER
            )
        if machine.loaded("jax") is not None:
            return Availability(
                True, "the program uses JAX, whose own profiler records it", auto=Auto.NEVER
            )
        return Availability(True, why)

    def capture(self, folder: Path, bounds: Bounds) -> CuptiCapture:
        from .capture import CuptiCapture  # lazy: it needs the recorder and NumPy

        return CuptiCapture(folder, bounds)

    def in_use(self) -> bool:
        if begins.cuda_in_use() or not driver.loads_one():
            return begins.cuda_in_use()
        from . import injection  # lazy: likewise

        return injection.begun()

    def when_used(self, function: Callable[[], None]) -> None:
        begins.when_cuda_begins(function)
        if driver.loads_one():
            from . import injection  # lazy: likewise

            injection.when_begun(function)


def attend(environ: Mapping[str, str]) -> None:
    """Tell CUDA's driver not to record this process by itself, if it was set up to: Python records it."""
    if driver.loads_one(environ):
        from . import injection  # lazy: likewise

        injection.attend(environ)


CUPTI: Final = CuptiBackend()
