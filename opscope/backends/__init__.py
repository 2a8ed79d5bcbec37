"""How a capture is made, and which way suits this machine."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.core import session
from opscope.core.nvtx_sink import attached
from opscope.core.session import Capture

_log = logging.getLogger(__name__)

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
    gpu = has_gpu(environ)
    nsys = shutil.which("nsys", path=environ.get("PATH"))
    if gpu and nsys and not in_process:
        return Choice("nsys", f"a GPU, and {nsys}")
    if in_process and jax_alone():
        return Choice(
            "xplane", "JAX is loaded: its profiler gives the operations, the recorder the ranges"
        )
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
