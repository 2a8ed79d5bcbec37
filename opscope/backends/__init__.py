"""How a capture is made, and which way suits this machine."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.core.capture import session
from opscope.core.capture.nvtx_sink import attached
from opscope.core.capture.session import Capture

from .gpu_runtime import platform

_log = logging.getLogger(__name__)

#: Values of a list of visible devices that hide all.
_HIDE: Final = ("", "-1", "NoDevFiles")
#: What nsys sets in the processes that it starts.
_NSYS_SIGNS: Final = ("NSYS_PROFILING_SESSION_ID", "QUADD_INJECTION_PROXY")
UNHEARD: Final = (
    "Nsight Systems runs this without -t nvtx and hears no range: opscope records them itself; with "
    "`nsys profile -t nvtx,cuda` they are in its report beside the kernels"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend's name (``emit``, ``nsys``, ``kineto``, ``xplane``, ``recorder``) and why it was chosen."""

    name: str
    reason: str


def choose(in_process: bool = True, environ: Mapping[str, str] = os.environ) -> Choice:
    """The backend that ``auto`` stands for. Imports no framework and touches no driver.

    ``in_process``: the program runs already, so it cannot be started under nsys any more.
    """
    if under_nsys(environ):
        if attached(environ) is not None and not environ.get("NVTX_DISABLE"):
            return Choice("emit", "running under Nsight Systems, which records the ranges itself")
        return Choice("recorder", UNHEARD)
    gpu = gpu_vendor(environ)
    nsys = shutil.which("nsys", path=environ.get("PATH"))
    if gpu == "nvidia" and nsys and not in_process:
        return Choice("nsys", f"a GPU, and {nsys}")
    if in_process and jax_alone():
        return Choice(
            "xplane", "JAX is loaded: its profiler gives the operations, the recorder the ranges"
        )
    if gpu is None:
        return Choice("recorder", "no GPU is visible: ranges are recorded in the process")
    if not has_torch():
        return Choice("recorder", "a GPU, but no profiler to see its kernels with (nsys, PyTorch)")
    torch = sys.modules.get("torch")
    if torch is not None and platform(torch) is None:
        return Choice("recorder", "a GPU, but this PyTorch is built without CUDA and ROCm")
    return Choice(
        "kineto", "a GPU and PyTorch: its profiler gives the kernels, the recorder the ops"
    )


def under_nsys(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Nsight Systems started this process."""
    return any(sign in environ for sign in _NSYS_SIGNS) or (
        "nsight" in environ.get("NVTX_INJECTION64_PATH", "").lower()
    )


def has_gpu(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> bool:
    """Whether a GPU is visible whose kernels can be captured, NVIDIA's or AMD's."""
    return gpu_vendor(environ, root) is not None


def gpu_vendor(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str | None:
    """``nvidia`` or ``amd``, by the driver's device file; None where there is none, or it is hidden.

    Asking the driver would initialise CUDA, which forked children could then not use.
    """
    dev = root / "dev"
    names: tuple[str, ...]
    if any(dev.glob("nvidia[0-9]*")) or (dev / "dxg").exists():
        found, names = "nvidia", ("CUDA_VISIBLE_DEVICES",)
    elif (dev / "kfd").exists() and _amd_nodes(root):
        found, names = (
            "amd",
            ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        )
    else:
        return None
    hidden = any(environ.get(name, "0").strip() in _HIDE for name in names)
    return None if hidden else found


def _amd_nodes(root: Path) -> bool:
    """Whether one of the nodes of ``/dev/kfd`` is a GPU; taken for granted where they are not told.

    The file is there on any machine with the driver loaded; a CPU is a node too, without SIMDs.
    """
    told = [*(root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")]
    found = []
    for path in told:
        try:
            found.append(re.search(r"^simd_count [1-9]", path.read_text(), re.MULTILINE))
        except OSError:  # of a GPU that a container may not use
            continue
    return not told or any(found)


def jax_alone() -> bool:
    """Whether the program has loaded JAX and not PyTorch."""
    return "jax" in sys.modules and "torch" not in sys.modules


def has_torch() -> bool:
    """Whether PyTorch is imported or can be."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def make(name: str, folder: str | os.PathLike[str]) -> Capture | None:
    """The capture of that backend into ``folder``, not yet started; None for ``emit``.

    Raises ValueError on a backend that cannot be made in the process.
    """
    # lazy: each has its own needs, and a process makes one of them
    if name == "emit":
        return None
    if name == "kineto":
        from .kineto import KinetoCapture

        return KinetoCapture(folder)
    if name == "xplane":
        from .xplane import XPlaneCapture

        return XPlaneCapture(folder)
    if name == "recorder":
        from .recorder import RecorderCapture

        return RecorderCapture(folder)
    raise ValueError(
        f"no backend {name!r} in the process; there are kineto, xplane, recorder and emit"
    )


def tell_unheard() -> None:
    """Say that Nsight Systems does not hear us, on stderr and in the recording."""
    _log.warning("opscope: %s", UNHEARD)
    recorder = session.recorder()
    if recorder is not None:
        recorder.note("warning", UNHEARD)


def begin(folder: str | os.PathLike[str], backend: str = "auto") -> Choice:
    """Start a capture of this process into ``folder``; what was started, and why.

    ``auto`` falls back to the recorder where the profiler cannot start, and the reason says so.
    Raises ValueError on an unknown backend, and what ``session.start`` does on one that was asked
    for by name.
    """
    choice = choose() if backend == "auto" else Choice(backend, "asked for")
    capture = make(choice.name, folder)
    if capture is None:
        if attached() is None:
            _log.warning("opscope: nothing is recorded: no tool that hears NVTX is attached")
        return choice
    try:
        session.start(capture)
        if choice.reason is UNHEARD:
            tell_unheard()
    except session.SessionError as error:
        if backend != "auto" or choice.name == "recorder" or session.capturing() is not None:
            raise
        choice = Choice("recorder", f"kernels are not captured: {error}")
        _log.warning("%s", choice.reason)
        fallback = make("recorder", folder)
        assert fallback is not None
        session.start(fallback)
        recorder = session.recorder()
        if recorder is not None:
            recorder.note("warning", choice.reason)
    return choice
