"""The ``kineto`` backend: PyTorch's profiler beside the recorder, for the kernels of PyTorch programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import begins, gpu_runtime
from .base import Auto, Availability, Backend
from .machine import Machine
from .window import Bounds

if TYPE_CHECKING:
    from .kineto_capture import KinetoCapture


class KinetoBackend(Backend):
    """PyTorch's profiler beside the recorder, for the kernels of PyTorch programs on a GPU."""

    name = "kineto"
    gives = "kernels"
    rank = 70
    gpu = True
    sample = """
import torch
one = torch.ones(64, 64, device="cuda")
(one @ one).sum().item()
"""

    def missing(self, trace: Any) -> str | None:
        if trace.has("kernels") and len(trace["kernels"]):
            return None
        return "no kernel of a product of matrices arrived"

    def available(self, machine: Machine) -> Availability:
        if machine.gpu is None:
            hidden = machine.hidden_by
            advice = f"unset {hidden} to use it" if hidden else "the backend recorder needs no GPU"
            return Availability(False, machine.no_gpu, advice)
        if not machine.has("torch"):
            return Availability(
                False,
                "PyTorch is not installed, whose profiler records kernels",
                "pip install torch in this environment",
            )
        torch, folder = machine.loaded("torch"), machine.folder("torch")
        if torch is not None:
            built = gpu_runtime.platform(torch)
        else:
            built = "unknown" if folder is None else gpu_runtime.platform_of(folder)
        if built is None or (built, machine.gpu) == ("cuda", "amd"):
            why = "built without CUDA and ROCm" if built is None else "built for CUDA, not for ROCm"
            return Availability(
                False, f"this PyTorch is {why}", "install a build of PyTorch for this GPU"
            )
        if machine.under_nsys:
            why = "Nsight Systems runs this process, and one tool at a time records kernels"
            return Availability(True, why, auto=Auto.NEVER)
        if torch is None and machine.loaded("jax") is not None:
            return Availability(
                True, "the program uses JAX, whose own profiler records it", auto=Auto.NEVER
            )
        return Availability(
            True,
            "a GPU is visible, with PyTorch, whose profiler records its kernels",
        )

    def capture(self, folder: Path, bounds: Bounds) -> KinetoCapture:
        from .kineto_capture import KinetoCapture  # lazy: ``auto`` asks every backend

        return KinetoCapture(folder, bounds=bounds)

    def in_use(self) -> bool:
        return begins.cuda_in_use()

    def when_used(self, function: Callable[[], None]) -> None:
        begins.when_cuda_begins(function)


KINETO_BACKEND: Final = KinetoBackend()
