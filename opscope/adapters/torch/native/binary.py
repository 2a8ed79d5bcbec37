"""The native observer's binary: made on first use by the user's compiler, kept in a cache.

One binary for each torch, ABI, compiler target and source; CPython's version does not matter, as the
source uses only functions that all versions have.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

#: Compiled as one; the headers beside it are only parts of it.
SOURCE: Final = Path(__file__).with_name("observer.cpp")
#: A library of its own, for recordings of memory alone; it has no headers of ours.
MEMORY: Final = Path(__file__).with_name("memory.cpp")
#: Seconds that the compiler may take, and that one process waits for another that compiles.
TIMEOUT: Final = 600


class BuildError(RuntimeError):
    """The native observer cannot be had; the message says why in a line."""


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
    return Plan(find_compiler(), root, nvtx, f"{name}-{digest}", source)


def _parts(source: Path) -> tuple[Path, ...]:
    return (source, *sorted(source.parent.glob("*.h"))) if source == SOURCE else (source,)


def find_compiler() -> str | None:
    """The C++ compiler: ``$CXX``, or the first of the usual ones."""
    chosen = os.environ.get("CXX")
    if chosen:
        return shutil.which(chosen)
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


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


def cache_folders() -> list[Path]:
    """Where binaries are looked for, best first; new ones go to the first that can be written."""
    chosen = os.environ.get("OPSCOPE_CACHE")
    if chosen:
        first = Path(chosen)
    else:
        home = os.environ.get("XDG_CACHE_HOME")
        first = (Path(home) if home else Path.home() / ".cache") / "opscope"
    # Another user could lay a file for us into a shared folder: the fallback is ours alone.
    return [first, Path(tempfile.gettempdir()) / f"opscope-{os.getuid()}"]


def built(wanted: Plan) -> Path | None:
    """The binary, where there is one already."""
    for folder in cache_folders():
        path = folder / wanted.file
        if path.is_file() and _ours(path):
            return path
    return None


def build(wanted: Plan) -> Path:
    """The binary, built unless it is there. Raises BuildError where it cannot be."""
    found = built(wanted)
    if found is not None:
        return found
    if wanted.compiler is None:
        raise BuildError("no C++ compiler (c++, g++ or clang++; or set CXX)")
    if not (wanted.torch / "include" / "ATen" / "record_function.h").is_file():
        raise BuildError(f"{wanted.torch} has no headers")
    problems = []
    for folder in cache_folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _ours(folder) or not os.access(folder, os.W_OK):
                raise PermissionError("not ours to write")
            with _locked(folder / f"{wanted.file}.lock"):
                found = built(wanted)  # another process may have built it meanwhile
                return _compile(wanted, folder) if found is None else found
        except OSError as error:
            problems.append(f"{folder}: {error}")
    raise BuildError("no cache folder can be written: " + "; ".join(problems))


def command(wanted: Plan, output: Path) -> list[str]:
    """The compiler's command line."""
    include = wanted.torch / "include"
    nvtx = [] if wanted.nvtx is None else [f"-I{wanted.nvtx}", "-DOPSCOPE_NVTX"]
    import torch

    groups = ["-DOPSCOPE_C10D"] if torch.distributed.is_available() else []
    return [
        str(wanted.compiler),
        # NDEBUG: without it RecordFunction.inputs() asserts in each callback
        *("-O2", "-DNDEBUG", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{include}",
        f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        *nvtx,
        *groups,
        str(wanted.source),
        *("-o", str(output)),
        f"-L{wanted.torch / 'lib'}",
        *("-ltorch_cpu", "-lc10", "-ldl", "-lpthread"),
    ]


def _compile(wanted: Plan, folder: Path) -> Path:
    what, took = ("observer", 15) if wanted.source == SOURCE else ("memory observer", 5)
    sys.stderr.write(
        f"opscope: building the PyTorch {what} for this torch, once (about {took} s)\n"
    )
    begin = time.monotonic()
    temporary = folder / f"{wanted.file}.{os.getpid()}.tmp"
    # The tool that observes this process must not be loaded into its compiler.
    dropped = ("LD_PRELOAD", "NVTX_INJECTION64_PATH")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    try:
        done = subprocess.run(
            command(wanted, temporary),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            env=environment,
            check=False,
        )
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "")
            raise BuildError(f"{wanted.compiler} failed ({done.returncode}): {first[:300]}")
        path = folder / wanted.file
        temporary.replace(path)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{wanted.compiler} took over {TIMEOUT} s") from None
    finally:
        temporary.unlink(missing_ok=True)
    _log.info("opscope: built %s in %.1f s", path, time.monotonic() - begin)
    return path


def _ours(path: Path) -> bool:
    """Whether nobody but this user (or root) can have put it there."""
    status = path.stat()
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o002


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time is inside. The lock goes with the process that holds it."""
    import fcntl

    with path.open("a") as file:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildError(f"another process holds {path}") from None
                time.sleep(0.1)
        yield
