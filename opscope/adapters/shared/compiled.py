"""Compile the adapters' C and C++ libraries on first use, with the user's compiler, into a cache."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from opscope.core.capture import session

from . import cache

_log = logging.getLogger(__name__)

#: Seconds that the compiler may take, and that a process waits while another one compiles.
TIMEOUT: Final = 600
_CC: Final = ("cc", "gcc", "clang")
#: C++ compilers, the most usual first.
CXX: Final = ("c++", "g++", "clang++")
#: Variables that the compiler does not get: a tool that observes this process must not load into it.
_DROPPED: Final = ("LD_PRELOAD", "NVTX_INJECTION64_PATH")


#: Failed builds of this process, so that it does not try them again:
#: (library, compiler, the compiler's modification time in ns) → reason.
_failed: dict[tuple[Path, str, int], str] = {}


class BuildError(RuntimeError):
    """A native library cannot be built. The message gives the reason in one line."""


def built(
    source: Path, flags: tuple[str, ...] = (), announce: str = "", timeout: float = TIMEOUT
) -> Path:
    """Return the path of the shared library for the C or C++ file ``source``; compile it if not cached.

    Headers beside the file whose names begin with its name belong to it. ``flags`` hold its other
    dependencies (``-D``, ``-I``, libraries); different flags give a different library. ``announce`` is
    printed on stderr before the compilation. ``timeout``: seconds that the compiler may take.
    Raises BuildError if the library cannot be built, and on systems other than Linux.
    """
    name = library_name(source, flags)
    path = cached(name)
    if path is not None:
        return path
    compiler = compiler_of(source)
    if compiler is None:
        kind, variable, names = _kind(source)
        raise BuildError(
            f"no {kind} compiler found (tried {os.environ.get(variable) or ', '.join(names)})"
        )
    options = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", *flags, str(source))
    return make(
        name,
        lambda output: [compiler, *options, "-o", str(output), "-ldl", "-lpthread"],
        timeout,
        begin=lambda: say(announce),
    )


def say(line: str) -> None:
    """Print a line on stderr, if there is a stderr."""
    if line and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # stderr is closed
            sys.stderr.write(f"opscope: {line}\n")
            sys.stderr.flush()


def library_name(source: Path, flags: tuple[str, ...] = ()) -> str:
    """Return the name in the cache of the library that ``built`` makes. Raises BuildError except on Linux."""
    if not sys.platform.startswith("linux"):
        raise BuildError(f"{source.name} can be built on Linux only, not on {sys.platform}")
    parts = (source, *sorted(source.parent.glob(f"{source.stem}*.h")))
    texts = [part.read_text(encoding="utf-8") for part in parts]
    key = "\0".join((platform.machine(), platform.libc_ver()[1], *flags, *texts))
    return f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"


def compiler_of(source: Path) -> str | None:
    """Return the compiler that ``built`` uses for the file, None if there is none."""
    _, variable, names = _kind(source)
    return find_compiler(variable, names)


def _kind(source: Path) -> tuple[str, str, tuple[str, ...]]:
    return ("C++", "CXX", CXX) if source.suffix == ".cc" else ("C", "CC", _CC)


def cached(name: str) -> Path | None:
    """Return the path of library ``name`` if a cache folder has it and the file belongs to this user, else
    None."""
    return cache.find(name)


def find_compiler(variable: str, names: tuple[str, ...]) -> str | None:
    """Return the compiler that the environment variable names, else the first of ``names`` on PATH."""
    chosen = os.environ.get(variable)
    return next(filter(None, map(shutil.which, (chosen,) if chosen else names)), None)


def make(
    name: str,
    command: Callable[[Path], list[str]],
    timeout: float = TIMEOUT,
    begin: Callable[[], None] | None = None,
) -> Path:
    """Compile the library ``name`` with ``command(output)``, unless another process has just done so.

    The compiler writes a temporary file beside it, which is then renamed. Only one process at a time
    compiles. ``begin`` is called before the compilation. Raises BuildError if it cannot be built.
    """
    problems = []
    for folder in cache.folders():
        try:
            cache.prepare(folder)
            # time spent waiting for the compiler is not the program's own time
            with session.set_up(), _locked(folder / f"{name}.lock", timeout):
                path = cached(name)  # another process may have built it meanwhile
                if path is None:
                    for left in folder.glob(f"{name}.*.tmp"):  # left by a process killed in a build
                        left.unlink(missing_ok=True)
                    if begin is not None:
                        begin()
                    path = folder / name
                    _compile(command, path, timeout)
                return path
        except OSError as error:
            problems.append(f"{folder}: {error}")
    raise BuildError("no cache folder can be written: " + "; ".join(problems))


def _compile(command: Callable[[Path], list[str]], path: Path, timeout: float) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    line = command(temporary)
    tried = path, line[0], _change(line[0])
    if tried in _failed:
        raise BuildError(_failed[tried])
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    since = time.monotonic()
    try:
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
            check=False,
        )
        if done.returncode != 0:
            lines = done.stderr.splitlines() or [""]
            first = next((line for line in lines if "error:" in line), lines[0])
            _failed[tried] = f"{line[0]} failed ({done.returncode}): {first[:300]}"
            raise BuildError(_failed[tried])
        temporary.chmod(0o755)  # with a umask of 002 the group could write to it
        temporary.replace(path)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{line[0]} took longer than {timeout:g} s") from None
    finally:
        temporary.unlink(missing_ok=True)
    _log.info("opscope: built %s in %.1f s", path, time.monotonic() - since)


def _change(compiler: str) -> int:
    try:
        return os.stat(shutil.which(compiler) or compiler).st_mtime_ns
    except OSError:
        return 0


@contextlib.contextmanager
def _locked(path: Path, timeout: float) -> Iterator[None]:
    """Let one process at a time run the block. The lock ends with the process that holds it."""
    import fcntl  # Windows lacks it; nothing is compiled there

    with path.open("a") as file:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildError(f"another process holds the lock {path}") from None
                time.sleep(0.05)
        yield
