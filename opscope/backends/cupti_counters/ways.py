"""Choose how a run's hardware counters are measured: the first way of a fixed order that can begin.

1. ``ranges``: CUPTI's range profiling, each kernel by itself, of any framework (libcupti of CUDA 12.6 on);
2. ``torch``: PyTorch's profiler, each kernel by itself (PyTorch for CUDA 12 at most);
3. ``sampling``: CUPTI's PM sampling, of whole devices by time (likewise of CUDA 12.6 on).

Under Nsight Compute none of them is used, because it measures by itself. If none can begin, Nsight Compute is
the remaining way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from opscope.backends import begins, kineto_counters
from opscope.backends.base import Availability, Backend
from opscope.backends.machine import Machine
from opscope.backends.window import Bounds
from opscope.core.capture.session import Capture, SessionError
from opscope.core.counter_permission import REMEDY, forbidden

#: The environment variable with the way that ``opscope run --counters-by`` names.
BY: Final = "OPSCOPE_COUNTERS_BY"
AUTO: Final = "auto"
#: Environment variables that Nsight Compute sets in the processes that it starts.
_NCU: Final = ("NV_COMPUTE_PROFILER", "NV_NSIGHT_INJECTION", "NV_TPS")
UNDER_NCU: Final = "Nsight Compute runs this process and measures its kernels itself"


class _Way(Backend):
    """A way to measure counters. It is not a backend that users name: ``--counters`` requests it."""

    gives = "hardware counters"
    rank = 0
    gpu = True
    #: The way's name on the command line, and its name in texts.
    by: str
    title: str

    #: Why this way is used, if no earlier one could begin.
    why: str

    def available(self, machine: Machine) -> Availability:
        why = refusal(machine)
        return Availability(why is None, self.why if why is None else why)

    def in_use(self) -> bool:
        from opscope.backends.cupti import injection  # lazy: it loads NumPy

        return begins.cuda_in_use() or injection.begun(whoever=True)

    def when_used(self, function: Callable[[], None]) -> None:
        from opscope.backends.cupti import injection  # lazy: likewise

        begins.when_cuda_begins(function)
        injection.when_begun(function, whoever=True)


class _Ranges(_Way):
    name = "counters-ranges"
    by = "ranges"
    title = "CUPTI's range profiling"
    why = "libcupti has range profiling (CUDA 12.6 or later)"

    def capture(self, folder: Path, bounds: Bounds) -> Capture:
        from .capture import CounterCapture  # lazy: it needs the recorder and NumPy

        return CounterCapture(folder, kineto_counters.wanted(), bounds)


class _Torch(_Way):
    name = "counters-torch"
    by = "torch"
    title = "PyTorch's profiler"
    why = "PyTorch is built for CUDA 12 or earlier, for which Kineto measures counters"

    def capture(self, folder: Path, bounds: Bounds) -> Capture:
        from opscope.backends.kineto_capture import KinetoCapture  # lazy: likewise

        torch = sys.modules.get("torch")
        why = (
            "the program does not use PyTorch" if torch is None else kineto_counters.refusal(torch)
        )
        if why is not None:
            raise SessionError(why)
        return KinetoCapture(folder, bounds=bounds)


class _Sampling(_Way):
    name = "counters-sampling"
    by = "sampling"
    title = "CUPTI's PM sampling"
    why = "libcupti has PM sampling (CUDA 12.6 or later), of whole devices by time"

    def capture(self, folder: Path, bounds: Bounds) -> Capture:
        from .sampling import SamplingCapture  # lazy: likewise

        return SamplingCapture(folder, kineto_counters.wanted(), bounds)


#: The ways by the name on the command line, in the order of the rule.
WAYS: Final[Mapping[str, _Way]] = MappingProxyType(
    {way.by: way for way in (_Ranges(), _Torch(), _Sampling())}
)

_TITLES: Final[Mapping[str, str]] = MappingProxyType({way.name: way.title for way in WAYS.values()})


def refusal(machine: Machine) -> str | None:
    """Return why no way can measure on this machine; None if one may."""
    if any(name.startswith(_NCU) for name in machine.environ):
        return UNDER_NCU
    if machine.gpu is None:
        return machine.no_gpu
    if machine.gpu != "nvidia":
        return "counters are measured on NVIDIA's GPUs only: use rocprofv3 here"
    if machine.under_nsys:
        return "Nsight Systems runs this process, and one tool at a time measures"
    return REMEDY if forbidden() else None


def offered(machine: Machine, environ: Mapping[str, str] = os.environ) -> list[Backend]:
    """Return the ways that may begin in this process, in order; only the named one, if one is named."""
    by = environ.get(BY) or AUTO
    ways = list(WAYS.values()) if by == AUTO else [WAYS[by]]
    return [way for way in ways if way.available(machine).works]


def told(backends: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return which way measured and why, from the processes' reports of their backends; None if unknown."""
    for backend in backends:
        if backend["backend"] in _TITLES:
            return _TITLES[backend["backend"]], "; ".join(failed([backend])) or str(
                backend["reason"]
            )
    return None


def failed(backends: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why each way that was tried did not begin, as the processes reported it."""
    reasons = [
        f"{_TITLES[other['backend']]}: {other['why']}"
        for backend in backends
        for other in backend.get("better", ())
        if other["backend"] in _TITLES
    ]
    return list(dict.fromkeys(reasons))
