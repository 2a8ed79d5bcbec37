"""The facts by which a backend decides whether it works here: environment, device files, packages,
programs.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from opscope.core.capture.nvtx_sink import attached

#: Values of a variable such as CUDA_VISIBLE_DEVICES that hide all devices.
_HIDE: Final = ("", "-1", "NoDevFiles")
#: Environment variables that nsys sets in the processes that it starts.
_NSYS_SIGNS: Final = ("NSYS_PROFILING_SESSION_ID", "QUADD_INJECTION_PROXY")
_NVIDIA: Final = ("CUDA_VISIBLE_DEVICES",)
_AMD: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_UNASKED: Final = "unasked"


class Machine:
    """The facts about a process and its machine that backends need; each is looked up when it is first
    needed.

    ``in_process``: the program already runs, so it can no longer be started under a tool. ``simple``: no
    framework is to be observed. ``foreign``: the program runs in a Python that is not this one, so its
    packages are unknown here. ``modules`` are the modules loaded (default: ``sys.modules``), ``packages``
    those installed, with their folders if a mapping
    (default: what this Python finds), ``gpu`` the GPU's vendor (default: by device files
    below ``root``).
    """

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        root: Path = Path("/"),
        *,
        in_process: bool = True,
        simple: bool = False,
        foreign: bool = False,
        modules: Mapping[str, Any] | None = None,
        packages: Collection[str] | Mapping[str, Path | None] | None = None,
        gpu: str | None = _UNASKED,
    ) -> None:
        self.environ, self.root = environ, root
        self.in_process, self.simple, self.foreign = in_process, simple, foreign
        self._modules = modules
        self._packages = packages
        self._gpu = gpu

    @functools.cached_property
    def gpu(self) -> str | None:
        """``nvidia`` or ``amd``; None if there is no GPU or it is hidden."""
        return gpu_vendor(self.environ, self.root) if self._gpu == _UNASKED else self._gpu

    @functools.cached_property
    def hidden_by(self) -> str | None:
        """The environment variable that hides the machine's GPU; None if none does or there is no GPU."""
        return hiding(self.environ, self.root)

    @functools.cached_property
    def vendor(self) -> str | None:
        """``nvidia`` or ``amd`` by device files, even if the GPU is hidden."""
        return _vendor(self.root)

    @property
    def no_gpu(self) -> str:
        """Why there is no GPU to record, in the words of a reason."""
        if self.gpu is None and self.hidden_by:
            return f"the GPU is hidden by {self.hidden_by}"
        return "no GPU is visible"

    def loaded(self, name: str) -> Any | None:
        """The module ``name`` if the program has imported it, else None."""
        return (sys.modules if self._modules is None else self._modules).get(name)

    def has(self, package: str) -> bool:
        """Whether the top-level ``package`` is loaded or installed; True for a ``foreign`` program."""
        if self.foreign or self.loaded(package) is not None:
            return True
        if self._packages is not None:
            return package in self._packages
        try:
            return importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):  # a module in sys.modules without a spec, a broken finder
            return False

    def folder(self, package: str) -> Path | None:
        """The folder of the installed top-level ``package``; None if it is not known."""
        if self.foreign or self._packages is not None:
            places = self._packages if isinstance(self._packages, Mapping) else {}
            return places.get(package)
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            return None
        folders = None if spec is None else spec.submodule_search_locations
        return Path(next(iter(folders))) if folders else None

    def program(self, name: str) -> str | None:
        """The path of the command ``name`` on PATH, or None."""
        return shutil.which(name, path=self.environ.get("PATH"))

    @property
    def under_nsys(self) -> bool:
        """Whether Nsight Systems started this process."""
        return under_nsys(self.environ)

    @property
    def is_heard(self) -> bool:
        """Whether an NVTX tool is attached and records ranges."""
        return attached(self.environ) is not None and not self.environ.get("NVTX_DISABLE")

    @property
    def is_unheard(self) -> bool:
        """Whether Nsight Systems runs this process and does not record its ranges."""
        return self.under_nsys and not self.is_heard


def under_nsys(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Nsight Systems started this process."""
    return any(sign in environ for sign in _NSYS_SIGNS) or (
        "nsight" in environ.get("NVTX_INJECTION64_PATH", "").lower()
    )


def gpu_vendor(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str | None:
    """Return ``nvidia`` or ``amd`` by the driver's device file; None if there is no GPU or it is hidden."""
    return None if hiding(environ, root) else _vendor(root)


def hiding(environ: Mapping[str, str], root: Path) -> str | None:
    """Return the environment variable that hides all GPUs of this machine; None if there is none to hide."""
    vendor = _vendor(root)
    if vendor is None:
        return None
    names = _NVIDIA if vendor == "nvidia" else _AMD
    return next((name for name in names if environ.get(name, "0").strip() in _HIDE), None)


def _vendor(root: Path) -> str | None:
    dev = root / "dev"
    if any(dev.glob("nvidia[0-9]*")) or (dev / "dxg").exists():
        return "nvidia"
    return "amd" if (dev / "kfd").exists() and _amd_nodes(root) else None


def _amd_nodes(root: Path) -> bool:
    """Whether one of the nodes of ``/dev/kfd`` is a GPU; True if the system does not list the nodes.

    The file exists on every machine with the driver loaded. A CPU is a node too, without SIMDs.
    """
    nodes = [*(root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")]
    simds = []
    for path in nodes:
        try:
            simds.append(re.search(r"^simd_count [1-9]", path.read_text(), re.MULTILINE))
        except OSError:  # a GPU that this container may not use
            continue
    return not nodes or any(simds)
