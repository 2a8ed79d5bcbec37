"""The native observer's binary: made on first use by the user's compiler, kept in a cache.

One binary for each torch, ABI, compiler target and source; CPython's version does not matter, as the
source uses only functions that all versions have.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.adapters.shared.compiled import (
    CXX,
    TIMEOUT,
    BuildError,
    cached,
    find_compiler,
    make,
    say,
)

__all__ = ["BuildError", "Plan", "build", "built", "command", "nvtx_headers", "plan"]

#: Compiled as one; the headers beside it are only parts of it.
SOURCE: Final = Path(__file__).with_name("observer.cpp")
#: A library of its own, for recordings of memory alone; it has no headers of ours.
MEMORY: Final = Path(__file__).with_name("memory.cpp")
#: Likewise, for the names of process groups, where there are any.
GROUPS: Final = Path(__file__).with_name("groups.cpp")
#: What each is called, and the seconds that it takes to compile, about.
_NAMES: Final = {
    "observer": ("observer", 11),
    "memory": ("memory observer", 5),
    "groups": ("observer of process groups", 8),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be built, and where it lies when it is."""

    compiler: str | None
    torch: Path
    nvtx: Path | None
    key: str
    source: Path = SOURCE

    @property
    def file(self) -> str:
        return f"torch-{self.source.stem}-{self.key}.so"


def plan(source: Path = SOURCE) -> Plan:
    """What this process needs. Imports no torch. Raises BuildError where there can be none."""
    if not sys.platform.startswith("linux"):
        raise BuildError(f"the native observer is for Linux, not {sys.platform}")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError("PyTorch is not installed")
    root = Path(spec.origin).resolve().parent
    nvtx = nvtx_headers()
    try:
        version = (root / "version.py").read_text(encoding="utf-8")
        size = (root / "lib" / "libtorch_cpu.so").stat().st_size
    except OSError as error:
        raise BuildError(f"not a PyTorch as it is released: {error}") from None
    parts = (
        version,  # names the commit and the flavour, so the ABI too
        str(size),
        platform.machine(),
        "".join(platform.libc_ver()),
        "nvtx" if nvtx else "no nvtx",
        *(one.read_text(encoding="utf-8") for one in _parts(source)),
    )
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    named = re.search(r"__version__ = '([\w.+]+)'", version)
    name = named.group(1).replace("+", "-") if named else "unknown"
    compiler = find_compiler("CXX", CXX)
    return Plan(compiler, root, nvtx, f"{name}-{digest}", source)


def _parts(source: Path) -> tuple[Path, ...]:
    return (source, *sorted(source.parent.glob("*.h"))) if source == SOURCE else (source,)


def nvtx_headers() -> Path | None:
    """The folder that has ``nvtx3/nvToolsExt.h``: NVIDIA's wheel, a CUDA toolkit, the system."""
    site = [Path(sysconfig.get_paths()[name]) for name in ("purelib", "platlib")]
    folders: list[Path] = []
    for root in dict.fromkeys(site):
        folders += sorted(root.glob("nvidia/*/include"), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            folders.append(Path(os.environ[variable]) / "include")
    folders += [Path("/usr/local/cuda/include"), Path("/usr/include")]
    return next((one for one in folders if (one / "nvtx3" / "nvToolsExt.h").is_file()), None)


def built(wanted: Plan) -> Path | None:
    """The binary, where there is one already."""
    return cached(wanted.file)


def build(wanted: Plan) -> Path:
    """The binary, built unless it is there. Raises BuildError where it cannot be."""
    found = built(wanted)
    if found is not None:
        return found
    if wanted.compiler is None:
        raise BuildError("no C++ compiler (c++, g++ or clang++; or set CXX)")
    if not (wanted.torch / "include" / "ATen" / "record_function.h").is_file():
        raise BuildError(f"{wanted.torch} has no headers")
    line = line_of(wanted)
    return make(wanted.file, lambda output: command(wanted, output), TIMEOUT, lambda: say(line))


def line_of(wanted: Plan) -> str:
    """What is said before it is compiled."""
    what, took = _NAMES[wanted.source.stem]
    return f"building the PyTorch {what} for this torch, once (about {took} s)"


def command(wanted: Plan, output: Path) -> list[str]:
    """The compiler's command line."""
    include = wanted.torch / "include"
    nvtx = [] if wanted.nvtx is None else [f"-I{wanted.nvtx}", "-DOPSCOPE_NVTX"]
    import torch

    return [
        str(wanted.compiler),
        # NDEBUG: without it RecordFunction.inputs() asserts in each callback
        *("-O2", "-DNDEBUG", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        *("-fno-plt", "-w", "-DAT_PER_OPERATOR_HEADERS"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{include}",
        f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        *nvtx,
        str(wanted.source),
        *("-o", str(output)),
        f"-L{wanted.torch / 'lib'}",
        *("-ltorch_cpu", "-lc10", "-ldl", "-lpthread"),
    ]
