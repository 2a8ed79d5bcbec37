"""Run the typed command: plain lines by ``quick``, others by Typer. Expected errors are printed as one
line."""

from __future__ import annotations

import os
import sys

from . import quick


def run() -> int:
    """Run the command that was typed; return the exit status."""
    words = sys.argv[1:]
    try:
        status = quick.answer(words)
        if status is None:
            from .app import app

            app(prog_name="opscope")
            status = 0
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except Exception as error:
        status = _explained(error)
        if status is None:
            raise
    return status


def _explained(error: Exception) -> int | None:
    """Print an expected error as one line; return the exit status, or None for any other error."""
    from opscope.core.not_merged import NotMerged
    from opscope.core.refusals import WAYS_OUT, refusal
    from opscope.readers.errors import BadInput, SeveralRuns
    from opscope.scale.errors import EngineError

    from . import common

    if isinstance(error, (BadInput, EngineError, NotMerged)):
        common.say(str(error))
        if isinstance(error, SeveralRuns):
            common.show_runs(error.runs)
        return 2
    if isinstance(error, OSError) and error.errno in WAYS_OUT:
        subject = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        common.say(f"{subject}{refusal(error)}")
        return 2
    return None
