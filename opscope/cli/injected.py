"""Have CUDA's driver load opscope's helper for CUPTI into the programs of ``opscope run``, where it helps."""

from __future__ import annotations

import os
import socket

from opscope import backends
from opscope.adapters import modes

from . import ahead, common


def settings(
    backend: str,
    mode: str,
    command: list[str],
    *,
    private: bool,
    part: bool,
    inside: bool = False,
) -> dict[str, str]:
    """Return the environment variables for it; none if CUPTI does not record.

    CUPTI records for ``--backend cupti``, where ``auto`` chooses it, and in simple mode: inside a process,
    nothing else records kernels of other programs than this Python, or of Python programs without PyTorch and
    JAX. ``part``: only a part of the run is recorded, which the helper cannot do by itself. ``inside``: only
    Python programs use CUPTI, whatever the backend. If the variables cannot be set, the reason is printed.
    """
    foreign = not ahead.is_ours(command[0])
    machine = backends.here(in_process=False, simple=mode == modes.SIMPLE)
    if backend == "auto":
        wanted = machine.simple or backends.choose(machine=machine).name == "cupti"
    else:
        wanted = backend == "cupti"
    wanted = wanted or inside
    if not wanted or not backends.known.load("cupti").available(machine).works:
        return {}
    from opscope.backends.cupti import injection, library
    from opscope.core.capture import process

    library_file, _ = library.here(foreign=foreign)
    if library_file is None:
        return {}
    host = socket.gethostname()
    if private:
        host = process.private_host(host, process.boot())
    try:
        return injection.settings(
            os.environ, library_file.path, host=host, alone=not (part or inside)
        )
    except RuntimeError as error:  # BuildError
        common.say(f"kernels of programs that are not Python are not recorded: {error}")
        return {}
