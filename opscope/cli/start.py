"""Run what was typed: a plain line by ``quick``, any other by Typer; an expected error is one line."""

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
    """Say an error that a user meets in a line; return the exit status, or None for any other error."""
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
