"""The ``emit`` backend: opscope sends ranges by NVTX to the tool that runs the process, and the tool
records them."""

from __future__ import annotations

from typing import Final

from .base import Auto, Availability, Backend
from .machine import Machine


class Emit(Backend):
    """Sends ranges to the NVTX tool around the process; opscope records nothing itself."""

    name = "emit"
    gives = "ranges in the tool's own report"
    rank = 100
    outside = True

    def available(self, machine: Machine) -> Availability:
        if not machine.is_heard:
            tool = machine.environ.get("NVTX_INJECTION64_PATH")
            if tool and machine.environ.get("NVTX_DISABLE"):
                return Availability(
                    False, "NVTX_DISABLE is set, so no tool hears ranges", "unset NVTX_DISABLE"
                )
            if tool:
                why = f"the NVTX tool {tool} does not exist, so NVTX is silent"
                return Availability(False, why, "unset NVTX_INJECTION64_PATH, or correct it")
            if machine.under_nsys:
                return Availability(
                    False,
                    "Nsight Systems runs this process without -t nvtx, so it hears no ranges",
                    "start with: nsys profile -t nvtx,cuda",
                )
            return Availability(
                False, "no NVTX tool is attached to this process", "only a tool around it attaches"
            )
        if not machine.has("nvtx"):
            return Availability(
                False, "the package nvtx is not installed", "pip install nvtx in this environment"
            )
        if machine.under_nsys:
            return Availability(
                True, "running under Nsight Systems, which records the ranges itself"
            )
        return Availability(
            True, "an NVTX tool is attached, which opscope does not know", auto=Auto.NEVER
        )


EMIT: Final = Emit()
