"""Find the ``libcupti`` that fits the CUDA of this process."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

_MAPS: Final = Path("/proc/self/maps")
#: Names of CUDA's runtime libraries, which end in CUDA's major version.
_RUNTIME: Final = re.compile(
    r"/lib(?:cudart|nvrtc|cublas|cublasLt)(?:-[0-9a-f]+)?\.so\.(\d+)[.\d]*$"
)
_CUPTI: Final = re.compile(r"/libcupti(?:-[0-9a-f]+)?\.so(?:\.(\d+)[.\d]*)?$")
_FOLDER: Final = re.compile(r"(?:/cu|/cuda-)(\d+)(?:[./]|$)")
#: Folders with the library, below a folder of Python packages, and below CUDA's own folder.
_IN_PACKAGES: Final = ("nvidia/cuda_cupti/lib", "nvidia/cu*/lib")
_IN_CUDA: Final = ("extras/CUPTI/lib64", "lib64", "targets/*/lib", "lib")


#: The first driver of each major version of CUDA, as the CUDA Toolkit's release notes have it.
_DRIVERS: Final = ((580, 13), (525, 12), (450, 11))


@dataclass(frozen=True, slots=True)
class Found:
    """A ``libcupti``, the major version of CUDA that it belongs to (None: not known), and where it was
    found."""

    path: Path
    major: int | None
    where: str


def loaded(maps: Path = _MAPS) -> Found | None:
    """Return the ``libcupti`` that this process has loaded, None if none."""
    for path in _map(maps):
        match = _CUPTI.search(path)
        if match:
            return Found(Path(path), _major(Path(path)), "loaded in this process")
    return None


def cuda_major(torch: Any = None, maps: Path = _MAPS) -> int | None:
    """Return CUDA's major version in this process, by its libraries, else by PyTorch; None if unknown."""
    for path in _map(maps):
        match = _RUNTIME.search(path)
        if match:
            return int(match[1])
    version = getattr(getattr(torch, "version", None), "cuda", None)
    return (
        int(version.split(".")[0]) if isinstance(version, str) and version[:1].isdigit() else None
    )


def candidates(
    environ: Mapping[str, str] = os.environ,
    packages: Iterable[str] | None = None,
    root: Path = Path("/"),
    foreign: bool = False,
) -> Iterator[Found]:
    """Yield every ``libcupti`` of this machine, in the order of preference, each once.

    Libraries in Python packages come first, because frameworks use these; for a ``foreign`` program, which is
    not Python, they come last.
    """
    seen: set[Path] = set()
    ours = _of_packages(sys.path if packages is None else packages)
    others = _folders(environ, root)
    for folder, where in chain(others, ours) if foreign else chain(ours, others):
        try:
            files = sorted(
                folder.glob("libcupti.so*"), key=lambda path: (len(path.name), path.name)
            )
        except OSError:  # a folder that may not be read
            continue
        for file in files:
            try:
                real = file.resolve()
            except (OSError, RuntimeError):
                continue
            if real not in seen and real.is_file():
                seen.add(real)
                yield Found(file, _major(file), where)
    for cached in _of_linker(root):
        if cached.exists() and cached.resolve() not in seen:
            seen.add(cached.resolve())
            yield Found(cached, _major(cached), "the linker's cache")


def driver_major(root: Path = Path("/")) -> int | None:
    """Return the newest major version of CUDA that the kernel driver supports; None if unknown."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"Kernel Module.*?\s(\d{3})\.\d", text)
    if match is None:
        return None
    return next((cuda for driver, cuda in _DRIVERS if int(match[1]) >= driver), None)


def choose(
    major: int | None, libraries: Iterable[Found], driver: int | None = None
) -> Found | None:
    """Return the first library that fits CUDA's major version in the process; None if none fits.

    If that version is unknown (None), return the first that the driver supports, if its version is known.
    """
    every = list(libraries)
    if major is not None:
        fits = [candidate for candidate in every if candidate.major == major]
        return next(
            iter([*fits, *(candidate for candidate in every if candidate.major is None)]), None
        )
    return next(
        (
            candidate
            for candidate in every
            if driver is None or candidate.major is None or candidate.major <= driver
        ),
        None,
    )


def here(
    torch: Any = None,
    environ: Mapping[str, str] = os.environ,
    foreign: bool = False,
    packages: Iterable[str] | None = None,
    root: Path = Path("/"),
) -> tuple[Found | None, str]:
    """Return the library for this process; without one, None and the reason with advice.

    ``foreign``: the library is for a program other than this process. ``packages`` are folders of Python
    packages (None: this Python's), ``root`` is the root folder of the machine.
    """
    maps = root / "proc/self/maps"
    already = None if foreign else loaded(maps)
    if already is not None:
        return already, ""
    major = None if foreign else cuda_major(torch, maps)
    every = list(candidates(environ, packages, root, foreign))
    driver = driver_major(root)
    library_file = choose(major, every, driver)
    if library_file is not None:
        return library_file, ""
    if not every:
        suffix = {11: "-cu11", 12: "-cu12"}.get(major or driver or 0, "")
        return None, (
            f"no libcupti.so was found; pip install nvidia-cuda-cupti{suffix}, or set CUDA_HOME"
        )
    others = ", ".join(sorted({str(candidate.major) for candidate in every}))
    why = f"the program uses CUDA {major}" if major else f"the driver takes CUDA up to {driver}"
    return None, f"{why}, and every libcupti here is of CUDA {others}"


def _map(maps: Path) -> list[str]:
    try:
        text = maps.read_text("utf-8", "replace")
    except OSError:  # no /proc
        return []
    return list(dict.fromkeys(re.findall(r"(/\S.*)$", text, re.MULTILINE)))


def _of_packages(packages: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for package in packages:
        for pattern in _IN_PACKAGES:
            for folder in _glob(Path(package or "."), pattern):
                yield folder, "the Python packages"


def _folders(environ: Mapping[str, str], root: Path) -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        if environ.get(variable):
            for pattern in _IN_CUDA:
                for folder in _glob(Path(environ[variable]), pattern):
                    yield folder, variable
    for name in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if name:
            yield Path(name), "LD_LIBRARY_PATH"
    for cuda in _glob(root, "usr/local/cuda*"):
        for pattern in _IN_CUDA[:3]:
            for folder in _glob(cuda, pattern):
                yield folder, str(cuda)


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern), reverse=True)  # the newest version first
    except OSError:
        return []


def _of_linker(root: Path) -> Iterator[Path]:
    """Yield the libraries in the dynamic linker's cache; none if the linker's program is missing."""
    program = root / "sbin/ldconfig"
    if not program.exists():
        return
    try:
        done = subprocess.run(
            [str(program), "-p"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return
    for path in re.findall(r"libcupti\.so[.\d]* .*=> (/\S+)", done.stdout):
        yield Path(path)


def _major(path: Path) -> int | None:
    """Return CUDA's major version by the file's name, the name behind a link, or the folder."""
    names = [str(path)]
    with contextlib.suppress(OSError, RuntimeError):
        names.append(str(path.resolve()))
    for name in names:
        match = _CUPTI.search(name)
        if match and match[1] and int(match[1]) < 1000:
            return int(match[1])  # other versions are years: libcupti.so.2024.1.1
    for name in names:
        match = _FOLDER.search(name)
        if match:
            return int(match[1])
    return None
