"""Choose the backend that suits this process and machine, and begin a capture with it."""

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

#: Values of a variable such as CUDA_VISIBLE_DEVICES that hide all devices.
_HIDE: Final = ("", "-1", "NoDevFiles")
#: Environment variables that nsys sets in the processes that it starts.
_NSYS_SIGNS: Final = ("NSYS_PROFILING_SESSION_ID", "QUADD_INJECTION_PROXY")
UNHEARD: Final = (
    "Nsight Systems runs this process without -t nvtx, so it does not record ranges: opscope records them "
    "itself. Start with `nsys profile -t nvtx,cuda` to have them in its report beside the kernels"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend's name (``emit``, ``nsys``, ``kineto``, ``mindspore``, ``xplane``, ``recorder``) and why."""

    name: str
    reason: str


def choose(in_process: bool = True, environ: Mapping[str, str] = os.environ) -> Choice:
    """Return the backend that ``auto`` means here. Imports no framework and calls no driver.

    ``in_process``: the program already runs, so it can no longer be started under nsys.
    """
    if under_nsys(environ):
        if attached(environ) is not None and not environ.get("NVTX_DISABLE"):
            return Choice("emit", "running under Nsight Systems, which records the ranges itself")
        return Choice("recorder", UNHEARD)
    gpu = gpu_vendor(environ)
    nsys = shutil.which("nsys", path=environ.get("PATH"))
    if gpu == "nvidia" and nsys and not in_process:
        return Choice("nsys", f"a GPU is visible, and nsys is installed: {nsys}")
    if in_process and jax_alone():
        return Choice(
            "xplane",
            "JAX is loaded: its profiler records the operations, opscope's recorder the ranges",
        )
    if in_process and mindspore_alone():
        return Choice(
            "mindspore",
            "MindSpore is loaded: its profiler records the operators, opscope's recorder the ranges",
        )
    if gpu is None:
        return Choice("recorder", "no GPU is visible: ranges are recorded in the process")
    if not has_torch():
        return Choice(
            "recorder",
            "a GPU is visible, but nothing that can record its kernels is installed (nsys or PyTorch)",
        )
    torch = sys.modules.get("torch")
    if torch is not None and platform(torch) is None:
        return Choice(
            "recorder", "a GPU is visible, but this PyTorch is built without CUDA and ROCm"
        )
    return Choice(
        "kineto",
        "a GPU is visible, with PyTorch: its profiler records the kernels, opscope's recorder the ops",
    )


def under_nsys(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Nsight Systems started this process."""
    return any(sign in environ for sign in _NSYS_SIGNS) or (
        "nsight" in environ.get("NVTX_INJECTION64_PATH", "").lower()
    )


def has_gpu(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> bool:
    """Whether an NVIDIA or AMD GPU is visible, whose kernels can be captured."""
    return gpu_vendor(environ, root) is not None


def gpu_vendor(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str | None:
    """Return ``nvidia`` or ``amd`` by the driver's device file; None if there is no GPU or it is hidden.

    A call of the driver would initialise CUDA, and forked children could then not use it.
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
    """Whether one of the nodes of ``/dev/kfd`` is a GPU; True if the system does not list the nodes.

    The file exists on every machine with the driver loaded. A CPU is a node too, without SIMDs.
    """
    nodes = [*(root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")]
    found = []
    for path in nodes:
        try:
            found.append(re.search(r"^simd_count [1-9]", path.read_text(), re.MULTILINE))
        except OSError:  # a GPU that this container may not use
            continue
    return not nodes or any(found)


def jax_alone() -> bool:
    """Whether the program has imported JAX but not PyTorch."""
    return "jax" in sys.modules and "torch" not in sys.modules


def mindspore_alone() -> bool:
    """Whether the program has imported MindSpore, wholly, but neither PyTorch nor JAX."""
    found = sys.modules.get("mindspore")
    return hasattr(found, "nn") and "torch" not in sys.modules and "jax" not in sys.modules


def has_torch() -> bool:
    """Whether PyTorch is imported or installed."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


def make(name: str, folder: str | os.PathLike[str]) -> Capture | None:
    """Return the backend's capture into ``folder``, not yet started; None for ``emit``.

    Raises ValueError for a backend that does not exist in the process.
    """
    # lazy: each backend has its own imports, and a process uses only one
    if name == "emit":
        return None
    if name == "kineto":
        from .kineto import KinetoCapture

        return KinetoCapture(folder)
    if name == "mindspore":
        from .mindspore_profiler import MindSporeCapture

        return MindSporeCapture(folder)
    if name == "xplane":
        from .xplane import XPlaneCapture

        return XPlaneCapture(folder)
    if name == "recorder":
        from .recorder import RecorderCapture

        return RecorderCapture(folder)
    raise ValueError(
        f"no backend {name!r} in the process; choose kineto, mindspore, xplane, recorder or emit"
    )


def warn_unheard() -> None:
    """Warn in the log and in the recording that Nsight Systems does not record ranges."""
    _log.warning("opscope: %s", UNHEARD)
    recorder = session.recorder()
    if recorder is not None:
        recorder.note("warning", UNHEARD)


def begin(folder: str | os.PathLike[str], backend: str = "auto") -> Choice:
    """Start a capture of this process into ``folder``; return the backend started, and why.

    If the profiler cannot start, ``auto`` falls back to the recorder, and the reason says so. Raises
    ValueError for an unknown backend, and for a backend requested by name what ``session.start`` raises.
    """
    choice = choose() if backend == "auto" else Choice(backend, "requested")
    capture = make(choice.name, folder)
    if capture is None:
        if attached() is None:
            _log.warning(
                "opscope: nothing is recorded: the backend emit needs an NVTX tool, and none is attached"
            )
        return choice
    try:
        session.start(capture)
        if choice.reason is UNHEARD:
            warn_unheard()
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
