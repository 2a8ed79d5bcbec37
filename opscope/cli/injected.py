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
    """Return the environment variables for it; none where CUPTI is not what records.

    That is so for ``--backend cupti``, where ``auto`` means it, and in simple mode: nothing else in a process
    records the kernels of a program that is not this Python, nor of one that uses neither PyTorch nor JAX.
    ``part``: only a part of the run is recorded, which the helper cannot do by itself. ``inside``: CUPTI is
    used from within Python programs, whatever the backend, and by them alone.
    Prints why it cannot be done.
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
    from opscope.core import redaction
    from opscope.core.capture import process

    library_file, _ = library.here(foreign=foreign)
    if library_file is None:
        return {}
    host = socket.gethostname()
    if private:
        host = redaction.private_host(host, process.boot())
    try:
        return injection.settings(
            os.environ, library_file.path, host=host, alone=not (part or inside)
        )
    except RuntimeError as error:  # BuildError
        common.say(f"kernels of programs that are not Python are not recorded: {error}")
        return {}
