"""The command line in this process, answering as a process of its own does; starting one costs a second.

Not for what a process is the subject of: what is imported, signals, terminals and pipes, limits, and programs that
are run and recorded.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from pathlib import Path
from unittest import mock

from opscope.cli import main


def opscope(
    *words: object, cwd: Path | None = None, stdin: bytes = b"", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run ``opscope *words`` in the folder ``cwd``, with more in the environment; return what came of it."""
    typed = ["opscope", *map(str, words)]
    given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    back = Path.cwd()
    with (
        mock.patch("sys.argv", typed),
        mock.patch("sys.stdin", given),
        mock.patch.dict(os.environ, environ),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            os.chdir(cwd or back)
            main()
        except SystemExit as done:
            status = done.code
        finally:
            os.chdir(back)
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(typed, status, *said)
