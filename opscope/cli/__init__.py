"""The command line: one command a file, nothing loaded that the command does not need."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exits 0 when done, 1 where a gate failed, 2 on bad input or usage."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal without Unicode shows a question mark rather than a traceback
            stream.reconfigure(errors="replace")
    from .app import run

    sys.exit(run())
