"""Get notified by CUDA's driver when the program initialises CUDA, in any framework.

The driver loads the library that ``CUDA_INJECTION64_PATH`` names when CUDA is initialised, and calls it.
``opscope run`` names the helper there. A thread here waits for that call and begins the recording. Meanwhile
the helper delays the call, without holding Python's lock and for a few seconds at most, because kernels that
run before the recording begins would be lost.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from opscope.adapters.shared import compiled

from . import helper
from .driver import VARIABLE

_log = logging.getLogger(__name__)
#: Interval (s) at which the helper is asked again; the driver's call ends the wait at once.
_WAIT_S: Final = 0.5


#: The facts that the helper needs to record a program that is not Python (live_injected.h).
LIBRARY: Final = "OPSCOPE_CUPTI_LIBRARY"
LAYOUTS: Final = "OPSCOPE_CUPTI_LAYOUTS"
HOST: Final = "OPSCOPE_CUPTI_HOST"


def settings(
    environ: Mapping[str, str], path: Path, *, host: str, alone: bool = True
) -> dict[str, str]:
    """Return the environment variables with which CUDA's driver loads the helper in a program.

    ``path`` is the libcupti, ``host`` the host's name in the recording. ``alone``: programs other than Python
    are recorded too. Empty if another tool is to be loaded there. Raises BuildError if the helper cannot be
    built.
    """
    if environ.get(VARIABLE) and not is_ours(environ):
        return {}
    variables = {VARIABLE: str(compiled.built(helper.SOURCE))}
    if alone:
        version = _version(path)
        variables |= {LIBRARY: str(path), HOST: host, LAYOUTS: _layouts(version)}
    return variables


def _version(path: Path) -> int | None:
    """Ask a libcupti for its version in a process of its own: it must not load into opscope's."""
    code = (
        "import sys; from pathlib import Path; from opscope.backends.cupti.api import Cupti; "
        "print(Cupti(Path(sys.argv[1])).version())"
    )
    folder = str(Path(__file__).resolve().parents[3])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *filter(None, sys.path)])}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True, text=True, timeout=60, check=False, env=env,
        )  # fmt: skip
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _layouts(version: int | None) -> str:
    from opscope.core.cupti.layouts import UnknownVersion  # lazy: it needs NumPy

    if version is None:
        return ""
    try:
        places = helper.places(version)
    except UnknownVersion:
        return ""
    return ",".join(f"{version}:{kind}:{size}:{text}" for kind, size, text in places)


def is_ours(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the driver loads opscope's helper."""
    return Path(environ.get(VARIABLE, "")).name.startswith(f"{helper.SOURCE.stem}-")


def attend(environ: Mapping[str, str]) -> None:
    """Tell the helper not to record this process itself, if the driver will load it: Python records it."""
    if is_ours(environ):
        # by its path: another Python's cache may be elsewhere
        helper.load(Path(environ[VARIABLE])).attend()


def begun(whoever: bool = False) -> bool:
    """Whether the program has initialised CUDA, as far as the driver reported it.

    ``whoever``: even if a profiler other than CUPTI has precedence.
    """
    if not is_ours() or (not whoever and _is_of_another()):
        return False
    return helper.load(Path(os.environ[VARIABLE])).injected()


def _is_of_another(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the program uses PyTorch or JAX and nobody asked for CUPTI: then their own profilers have
    precedence."""
    of_another = not {"torch", "jax"}.isdisjoint(sys.modules)
    return of_another and environ.get("OPSCOPE_RUN_BACKEND", "auto") == "auto"


def when_begun(function: Callable[[], None], whoever: bool = False) -> None:
    """Call ``function`` on a new thread once the program initialises CUDA; never, if the driver does not
    report it.

    ``whoever`` as in ``begun``.
    """
    if not is_ours():
        return
    try:
        native = helper.load(Path(os.environ[VARIABLE]))
    except (OSError, RuntimeError) as error:
        _log.warning("opscope: when CUDA begins is not known: %s", error)
        return

    awaited = False

    def wait() -> None:
        nonlocal awaited
        while not native.injected(_WAIT_S):
            continue
        try:
            if whoever or not _is_of_another():
                function()
        finally:
            awaited = False
            if native.beginners(-1):
                _log.warning(
                    "opscope: the program's first kernels may be missing: CUPTI began late"
                )

    def start() -> None:
        nonlocal awaited
        if not awaited:  # otherwise the parent of this fork counted it
            awaited = True
            native.beginners(1)
        threading.Thread(target=wait, name="opscope-cuda", daemon=True).start()

    start()
    if hasattr(os, "register_at_fork"):  # a forked child has no copy of the thread
        os.register_at_fork(after_in_child=start)
