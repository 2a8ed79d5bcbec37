"""Run a program and its child processes for a limited time, for gpu_check.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Seconds between SIGTERM and SIGKILL. SIGTERM also goes to ``opscope run``, which then makes a profile of
#: what was recorded so far.
GRACE = 20.0


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit status as a shell reports it, and whether it ran past its limit."""

    status: int
    seconds: float
    killed: bool

    @property
    def well(self) -> bool:
        return self.status == 0 and not self.killed

    def __str__(self) -> str:
        if self.killed:
            return f"killed after {self.seconds:.0f} s"
        if self.status > 128:
            return f"ended by signal {self.status - 128}"
        return f"exit status {self.status}"


def run(
    command: Sequence[str],
    log: Path,
    limit: float,
    env: Mapping[str, str] | None = None,
    grace: float = GRACE,
) -> Ended:
    """Run ``command`` for at most ``limit`` seconds, with its output in ``log``; kill its process group.

    A program that cannot be started has status 127. An exception here (Ctrl-C) also ends the program.
    """
    begin = time.monotonic()
    with open(log, "ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode())
        file.flush()
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        except OSError as error:
            file.write(f"gpu_check: {error}\n".encode())
            return Ended(127, 0.0, False)
        killed = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            killed = True
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        finally:
            # also after the program has ended: one of its children may still use the GPU
            _signal(process.pid, signal.SIGKILL)
            # a process that waits in the driver cannot be killed: it is left behind
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        status = -9 if process.returncode is None else process.returncode
        ended = Ended(128 - status if status < 0 else status, time.monotonic() - begin, killed)
        file.write(f"gpu_check: {ended}\n\n".encode())
    return ended


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
