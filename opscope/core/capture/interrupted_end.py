"""Keep Python's flag for an end by Ctrl-C, so that code that runs at exit does not change the exit status.

Python ends a program that an interrupt ended by SIGINT (a shell says 130). Until the end a flag records this,
and compiling code from text resets it. That happens for a named tuple or a data class in a module that is
imported at exit or meanwhile by another thread. The program would then end with status 1. This happened in 10
of 120 runs, when psutil was imported while the program ended.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Final

#: The name of a script's own code.
_SCRIPT: Final = "<module>"
#: The function of runpy that runs the module of ``python -m``.
_MODULE: Final = "_run_module_as_main"


def keep() -> None:
    """Set Python's flag again if an uncaught interrupt has ended the program's own script."""
    error = getattr(sys, "last_value", None)
    if type(error) is not KeyboardInterrupt or hasattr(sys, "ps1") or sys.flags.interactive:
        return
    trace = error.__traceback__
    main = sys.modules.get("__main__")
    if trace is None or main is None:
        return
    begun = trace.tb_frame
    script = begun.f_globals is vars(main) and begun.f_code.co_name == _SCRIPT
    # with -m, runpy runs the module; an error that began elsewhere, as in a notebook's cell, did not end the
    # module
    if not script and begun.f_code.co_name != _MODULE:
        return
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt", {})  # noqa: S102 - text of ours: only code from text sets the flag
