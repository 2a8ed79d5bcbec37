"""Other users of CUPTI in this process, and other users of the GPU, as far as the environment shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from opscope.backends.machine import under_nsys

#: Modules of programs that subscribe to CUPTI, with a description.
_MODULES = {
    "triton.profiler": "Triton's profiler (Proton)",
    "cupti": "the package cupti-python",
    "tensorflow": "TensorFlow's profiler",
    "jax": "JAX's profiler",
}


def guess(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a guess of the other subscriber, as the end of a sentence; ``name`` is CUPTI's name for it."""
    if name:
        return f"; it is {name}"
    if under_nsys(environ):
        return "; Nsight Systems runs this process: leave out --backend cupti"
    if any(
        variable.startswith(("NV_COMPUTE_PROFILER", "NV_NSIGHT_INJECTION", "NV_TPS"))
        for variable in environ
    ):
        return "; Nsight Compute runs this process"
    injected = environ.get("CUDA_INJECTION64_PATH")
    if injected and "opscope" not in injected:
        return f"; CUDA_INJECTION64_PATH loads {Path(injected).name} into it"
    torch = sys.modules.get("torch")
    if torch is not None:
        return (
            "; it may be torch.profiler, which stays subscribed after it ends: begin before it, or set "
            "TEARDOWN_CUPTI=1"
        )
    tools = [tool for module, tool in _MODULES.items() if module in sys.modules]
    return f"; it may be {' or '.join(tools)}" if tools else ""


def notes(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[str]:
    """Return the notes needed if the GPU is shared: MIG and MPS."""
    lines = []
    if is_mig(environ, root):
        lines.append(
            "the GPU is a MIG instance: times are its own, and other instances are not seen"
        )
    if is_mps(environ, root):
        lines.append(
            "the Multi-Process Service runs: other processes share the GPU, and their kernels are not seen"
        )
    return lines


def is_mig(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> bool:
    """Whether this process uses a MIG instance."""
    if "MIG-" in environ.get("CUDA_VISIBLE_DEVICES", "") or "MIG-" in environ.get(
        "NVIDIA_VISIBLE_DEVICES", ""
    ):
        return True
    return any((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*"))


def is_mps(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> bool:
    """Whether CUDA's Multi-Process Service runs here."""
    folder = environ.get("CUDA_MPS_PIPE_DIRECTORY") or str(root / "tmp/nvidia-mps")
    return (Path(folder) / "control").exists()
