"""Run a program of Nsight Systems to get its output, such as its version or help."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

#: Seconds for ``--version`` and ``--help``: 0.1 s here, more from a network disk.
ASKING_S: Final = 30


def asked(
    program: str | os.PathLike[str], environ: Mapping[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Return how the program ended and what it printed.

    Raises subprocess.TimeoutExpired after ``ASKING_S``, OSError where it cannot be started.
    """
    return subprocess.run(
        [program, *words],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=ASKING_S,
        check=False,
    )
