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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from opscope.core.capture import session

from . import cache

_log = logging.getLogger(__name__)

#: Seconds that the compiler may take, and that one process waits for another that compiles.
TIMEOUT: Final = 600
_CC: Final = ("cc", "gcc", "clang")
#: C++ compilers, the usual one first.
CXX: Final = ("c++", "g++", "clang++")
#: Not passed to the compiler: the tool that observes this process must not be loaded into it.
_DROPPED: Final = ("LD_PRELOAD", "NVTX_INJECTION64_PATH")


#: What this process could not compile, which would take as long again: (library, compiler, when that was
#: changed) → why.
_failed: dict[tuple[Path, str, int], str] = {}


class BuildError(RuntimeError):
    """The native part cannot be had; the message says why in a line."""


def built(source: Path, flags: tuple[str, ...] = (), announce: str = "") -> Path:
    """The shared library made of the C or C++ file ``source``, compiled unless it is in the cache.

    Headers beside it whose names begin with its own are parts of it. ``flags`` say what else it
    depends on (``-D``, ``-I``, libraries): others make another library. ``announce`` is said on stderr
    before it is compiled.
    Raises BuildError where it cannot be made, and on systems other than Linux.
    """
    name = library_name(source, flags)
    found = cached(name)
    if found is not None:
        return found
    compiler = compiler_of(source)
    if compiler is None:
        kind, variable, names = _kind(source)
        raise BuildError(f"no {kind} compiler ({os.environ.get(variable) or ', '.join(names)})")
    options = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", *flags, str(source))
    return make(
        name,
        lambda output: [compiler, *options, "-o", str(output), "-ldl", "-lpthread"],
        begin=lambda: say(announce),
    )


def say(line: str) -> None:
    """A line on stderr, where there is one."""
    if line and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # nobody can be told
            sys.stderr.write(f"opscope: {line}\n")
            sys.stderr.flush()


def library_name(source: Path, flags: tuple[str, ...] = ()) -> str:
    """What the library that ``built`` makes is called in the cache. Raises BuildError but on Linux."""
    if not sys.platform.startswith("linux"):
        raise BuildError(f"{source.name} is for Linux, not {sys.platform}")
    parts = (source, *sorted(source.parent.glob(f"{source.stem}*.h")))
    texts = [part.read_text(encoding="utf-8") for part in parts]
    key = "\0".join((platform.machine(), platform.libc_ver()[1], *flags, *texts))
    return f"{source.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"


def compiler_of(source: Path) -> str | None:
    """The compiler that ``built`` uses for the file, where there is one."""
    _, variable, names = _kind(source)
    return find_compiler(variable, names)


def _kind(source: Path) -> tuple[str, str, tuple[str, ...]]:
    return ("C++", "CXX", CXX) if source.suffix == ".cc" else ("C", "CC", _CC)


def cached(name: str) -> Path | None:
    """The library ``name``, where it is in a cache folder already and is ours."""
    return cache.find(name)


def find_compiler(variable: str, names: tuple[str, ...]) -> str | None:
    """The compiler that the environment variable names, else the first of ``names`` that is there."""
    chosen = os.environ.get(variable)
    return next(filter(None, map(shutil.which, (chosen,) if chosen else names)), None)


def make(
    name: str,
    command: Callable[[Path], list[str]],
    timeout: float = TIMEOUT,
    begin: Callable[[], None] | None = None,
) -> Path:
    """The library ``name``, compiled by ``command(output)`` unless another process just has.

    It is made under another name beside its own, then renamed; only one process at a time does so.
    ``begin`` is told before it is compiled. Raises BuildError where it cannot be made.
    """
    problems = []
    for folder in cache.folders():
        try:
            cache.prepare(folder)
            # whoever waits for the compiler does not wait for the program
            with session.set_up(), _locked(folder / f"{name}.lock", timeout):
                found = cached(name)  # another process may have made it meanwhile
                if found is None:
                    for left in folder.glob(f"{name}.*.tmp"):  # of a process killed at this
                        left.unlink(missing_ok=True)
                    if begin is not None:
                        begin()
                    found = folder / name
                    _compile(command, found, timeout)
                return found
        except OSError as error:
            problems.append(f"{folder}: {error}")
    raise BuildError("no cache folder can be written: " + "; ".join(problems))


def _compile(command: Callable[[Path], list[str]], path: Path, timeout: float) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    line = command(temporary)
    tried = path, line[0], _changed(line[0])
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
            first = next((one for one in lines if "error:" in one), lines[0])
            _failed[tried] = f"{line[0]} failed ({done.returncode}): {first[:300]}"
            raise BuildError(_failed[tried])
        temporary.chmod(0o755)  # a umask of 002 would leave it writable to the group
        temporary.replace(path)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{line[0]} took over {timeout:g} s") from None
    finally:
        temporary.unlink(missing_ok=True)
    _log.info("opscope: built %s in %.1f s", path, time.monotonic() - since)


def _changed(compiler: str) -> int:
    try:
        return os.stat(shutil.which(compiler) or compiler).st_mtime_ns
    except OSError:
        return 0


@contextlib.contextmanager
def _locked(path: Path, timeout: float) -> Iterator[None]:
    """Only one process at a time is inside. The lock goes with the process that holds it."""
    import fcntl  # not there on Windows, where nothing is compiled

    with path.open("a") as file:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildError(f"another process holds {path}") from None
                time.sleep(0.05)
        yield
