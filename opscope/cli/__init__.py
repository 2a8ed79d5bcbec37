"""The command line: one command per file; a command loads only what it needs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exit with 0 when done, 1 when a gate failed, 2 on bad input or usage."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # on a terminal without Unicode, print a question mark rather than a traceback
            stream.reconfigure(errors="replace")
    from .start import run

    sys.exit(run())
