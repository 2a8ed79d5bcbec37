"""Programs of several ranks with gloo, which PyTorch sometimes aborts at their end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

#: What PyTorch 2.13 says when it aborts as a process ends that used gloo. Seen without opscope in 1 of 50
#: processes, and in 2 of 25 runs of torchrun on a busy machine.
ABORTS = "terminate called without an active exception"


def unaborted(
    run: Callable[[], CompletedProcess[str]], folder: Path | None = None
) -> CompletedProcess[str]:
    """Return the run of a program, which is run again if PyTorch aborted it: nothing is learnt from that.

    Its profiles in ``folder``, if given, are removed before. After three times the last one is returned as it is.
    """
    for _ in range(2):
        done = run()
        if ABORTS not in done.stderr:
            return done
        for left in folder.glob("*.opscope") if folder else ():
            shutil.rmtree(left)
    return run()
