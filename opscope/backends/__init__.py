"""How a capture is made, and which way suits this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: What nsys sets in the processes that it starts.
_NSYS_SIGNS: Final = ("NSYS_PROFILING_SESSION_ID", "QUADD_INJECTION_PROXY")


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend's name (``emit``, ``nsys``, ``kineto``, ``recorder``) and why it was chosen."""

    name: str
    reason: str


def choose(in_process: bool = True, environ: Mapping[str, str] = os.environ) -> Choice:
    """The backend that ``auto`` stands for. Imports no framework and touches no driver.

    ``in_process``: the program runs already, so it cannot be started under nsys any more.
    """
    if under_nsys(environ):
        return Choice("emit", "running under Nsight Systems, which records the ranges itself")
    gpu = has_gpu(environ)
    nsys = shutil.which("nsys", path=environ.get("PATH"))
    if gpu and nsys and not in_process:
        return Choice("nsys", f"a GPU, and {nsys}")
    if not gpu:
        return Choice("recorder", "no NVIDIA GPU is visible: ranges are recorded in the process")
    if not has_torch():
        return Choice("recorder", "a GPU, but neither nsys nor PyTorch to see its kernels with")
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch.version, "cuda", None) is None:
        return Choice("recorder", "a GPU, but this PyTorch is built without CUDA")
    return Choice(
        "kineto", "a GPU and PyTorch: its profiler gives the kernels, the recorder the ops"
    )


def under_nsys(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Nsight Systems started this process."""
    return any(sign in environ for sign in _NSYS_SIGNS) or (
        "nsight" in environ.get("NVTX_INJECTION64_PATH", "").lower()
    )


def has_gpu(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> bool:
    """Whether an NVIDIA GPU is visible, by its device file.

    Asking the driver would initialise CUDA, which forked children could then not use.
    """
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1", "NoDevFiles"):
        return False
    return any((root / "dev").glob("nvidia[0-9]*")) or (root / "dev" / "dxg").exists()


def has_torch() -> bool:
    """Whether PyTorch is imported or can be."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None
