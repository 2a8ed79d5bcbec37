"""Keep what Python knows of an end by Ctrl-C: what runs at the exit must not change the exit status.

Python ends a program that an interrupt ended by SIGINT (a shell says 130). Until then a flag says so, and
any code that is compiled from text resets it: that of a named tuple or a data class, in a module which is
imported at the exit or, meanwhile, by another thread. The program would end with status 1 instead. That was
seen in 10 of 120 runs, when psutil was imported while the program ended.
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
    """Set Python's flag again if an interrupt that nobody caught has ended the program's own script."""
    error = getattr(sys, "last_value", None)
    if type(error) is not KeyboardInterrupt or hasattr(sys, "ps1") or sys.flags.interactive:
        return
    trace = error.__traceback__
    main = sys.modules.get("__main__")
    if trace is None or main is None:
        return
    begun = trace.tb_frame
    script = begun.f_globals is vars(main) and begun.f_code.co_name == _SCRIPT
    # with -m runpy runs the module; an error that began elsewhere, as in a notebook's cell, ended nothing
    if not script and begun.f_code.co_name != _MODULE:
        return
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt", {})  # noqa: S102 - text of ours: only code from text sets the flag
