"""Builds the native observer's libraries on first use, with the user's compiler, and caches them.

One binary for each torch, ABI, compiler target and source. CPython's version does not matter, because the
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

#: The observer's source, one translation unit: the headers beside it are parts of it.
SOURCE: Final = Path(__file__).with_name("observer.cpp")
#: The source of a separate library, only for recordings of memory. It includes no headers of ours.
MEMORY: Final = Path(__file__).with_name("memory.cpp")
#: The source of another separate library, for the names of process groups, where the program has any.
GROUPS: Final = Path(__file__).with_name("groups.cpp")
#: Source → the library's name in messages, and the approximate compile time in seconds.
_NAMES: Final = {
    "observer": ("observer", 11),
    "memory": ("memory observer", 5),
    "groups": ("observer of process groups", 8),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to build, and under which file name the cache has the result."""

    compiler: str | None
    torch: Path
    nvtx: Path | None
    key: str
    source: Path = SOURCE

    @property
    def file(self) -> str:
        return f"torch-{self.source.stem}-{self.key}.so"


def plan(source: Path = SOURCE) -> Plan:
    """Return the plan for this process, without importing torch. Raises BuildError where none is possible."""
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
        raise BuildError(f"PyTorch's package lacks a file that releases have: {error}") from None
    parts = (
        version,  # the version has the commit and the build variant, and so determines the ABI
        str(size),
        platform.machine(),
        "".join(platform.libc_ver()),
        "nvtx" if nvtx else "no nvtx",
        *(part.read_text(encoding="utf-8") for part in _parts(source)),
    )
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    named = re.search(r"__version__ = '([\w.+]+)'", version)
    name = named.group(1).replace("+", "-") if named else "unknown"
    compiler = find_compiler("CXX", CXX)
    return Plan(compiler, root, nvtx, f"{name}-{digest}", source)


def _parts(source: Path) -> tuple[Path, ...]:
    return (source, *sorted(source.parent.glob("*.h"))) if source == SOURCE else (source,)


def nvtx_headers() -> Path | None:
    """Return the folder with ``nvtx3/nvToolsExt.h`` (NVIDIA's wheel, a CUDA toolkit, the system), or None."""
    site = [Path(sysconfig.get_paths()[name]) for name in ("purelib", "platlib")]
    folders: list[Path] = []
    for root in dict.fromkeys(site):
        folders += sorted(root.glob("nvidia/*/include"), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            folders.append(Path(os.environ[variable]) / "include")
    folders += [Path("/usr/local/cuda/include"), Path("/usr/include")]
    return next(
        (folder for folder in folders if (folder / "nvtx3" / "nvToolsExt.h").is_file()), None
    )


def built(wanted: Plan) -> Path | None:
    """Return the binary's path, or None where it is not built yet."""
    return cached(wanted.file)


def build(wanted: Plan) -> Path:
    """Return the binary's path; build it first where it is missing. Raises BuildError where that fails."""
    library = built(wanted)
    if library is not None:
        return library
    if wanted.compiler is None:
        raise BuildError("no C++ compiler was found (install g++ or clang++, or set CXX)")
    if not (wanted.torch / "include" / "ATen" / "record_function.h").is_file():
        raise BuildError(f"{wanted.torch} has no C++ headers")
    line = line_of(wanted)
    return make(wanted.file, lambda output: command(wanted, output), TIMEOUT, lambda: say(line))


def line_of(wanted: Plan) -> str:
    """Return the line that is printed before the library is compiled."""
    subject, took = _NAMES[wanted.source.stem]
    return f"building the PyTorch {subject} for this torch, once (about {took} s)"


def command(wanted: Plan, output: Path) -> list[str]:
    """Return the compiler's command line."""
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
