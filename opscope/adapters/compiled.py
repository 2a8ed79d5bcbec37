"""Native parts of adapters: made on first use by the user's compiler, kept in a cache."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

#: Seconds that the compiler may take, and that one process waits for another that compiles.
TIMEOUT: Final = 120
_CC: Final = ("cc", "gcc", "clang")
_CXX: Final = ("c++", "g++", "clang++")
#: Not passed to the compiler: the tool that observes this process must not be loaded into it.
_DROPPED: Final = ("LD_PRELOAD", "NVTX_INJECTION64_PATH")


class BuildError(RuntimeError):
    """The native part cannot be had; the message says why in a line."""


def built(source: Path, flags: tuple[str, ...] = ()) -> Path:
    """The shared library made of the C or C++ file ``source``, compiled unless it is in the cache.

    Headers beside it whose names begin with its own are parts of it. ``flags`` say what else it
    depends on (``-D``, ``-I``, libraries): others make another library.
    Raises BuildError where it cannot be made, and on systems other than Linux.
    """
    if not sys.platform.startswith("linux"):
        raise BuildError(f"{source.name} is for Linux, not {sys.platform}")
    parts = (source, *sorted(source.parent.glob(f"{source.stem}*.h")))
    texts = [part.read_text(encoding="utf-8") for part in parts]
    key = "\0".join((platform.machine(), platform.libc_ver()[1], *flags, *texts))
    name = f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    folders = _cache_folders()
    for folder in folders:
        if (folder / name).is_file() and _ours(folder / name):
            return folder / name
    compiler = _compiler(*(("CXX", _CXX) if source.suffix == ".cc" else ("CC", _CC)))
    problems = []
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _ours(folder) or not os.access(folder, os.W_OK):
                raise PermissionError("not ours to write")
            with _locked(folder / f"{name}.lock"):
                if not (folder / name).is_file():
                    _compile(compiler, source, flags, folder / name)
                return folder / name
        except OSError as error:
            problems.append(f"{folder}: {error}")
    raise BuildError("no cache folder can be written: " + "; ".join(problems))


def _compiler(variable: str, usual: tuple[str, ...]) -> str:
    chosen = os.environ.get(variable)
    names = (chosen,) if chosen else usual
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    kind = {"CC": "C", "CXX": "C++"}[variable]
    raise BuildError(f"no {kind} compiler ({', '.join(names)})")


def _cache_folders() -> list[Path]:
    """Where libraries are looked for, best first; new ones go to the first that can be written."""
    chosen = os.environ.get("OPSCOPE_CACHE")
    if chosen:
        first = Path(chosen)
    else:
        home = os.environ.get("XDG_CACHE_HOME")
        first = (Path(home) if home else Path.home() / ".cache") / "opscope"
    # Another user could lay a file for us into a shared folder: the fallback is ours alone.
    return [first, Path(tempfile.gettempdir()) / f"opscope-{os.getuid()}"]


def _compile(compiler: str, source: Path, flags: tuple[str, ...], path: Path) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    if source.suffix == ".cc":
        sys.stderr.write(f"opscope: building {source.name} for this machine, once (some seconds)\n")
    command = [
        compiler,
        "-O2",
        "-w",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        str(source),
        *flags,
    ]
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    try:
        done = subprocess.run(
            [*command, "-o", str(temporary), "-ldl", "-lpthread"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            env=environment,
            check=False,
        )
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "")
            raise BuildError(f"{compiler} failed ({done.returncode}): {first[:300]}")
        temporary.replace(path)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{compiler} took over {TIMEOUT} s") from None
    finally:
        temporary.unlink(missing_ok=True)
    _log.info("opscope: built %s", path)


def _ours(path: Path) -> bool:
    """Whether nobody but this user (or root) can have put it there."""
    status = path.stat()
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o002


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time is inside. The lock goes with the process that holds it."""
    import fcntl
    import time

    with path.open("a") as file:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildError(f"another process holds {path}") from None
                time.sleep(0.05)
        yield
