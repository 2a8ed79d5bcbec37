"""Have Nsight Compute export a report of a format that is not known here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from opscope.readers.errors import BadInput

#: The program; another may be named where several versions are installed.
PROGRAM: Final = "OPSCOPE_NCU"
#: How long the exporter may take, in seconds.
LIMIT: Final = 300
#: Bytes of a table that are read at most.
MOST: Final = 1 << 30


def installed() -> str | None:
    """Return the path of ``ncu``: that named by the environment variable OPSCOPE_NCU, else the one on
    PATH.
    """
    named = os.environ.get(PROGRAM)
    return named or shutil.which("ncu") or shutil.which("nv-nsight-cu-cli")


def export(path: Path) -> str:
    """Return the report's CSV as ncu writes it. Raises BadInput: without ncu, if it fails or takes too
    long.
    """
    program = installed()
    if program is None:
        raise BadInput(
            path,
            "only Nsight Compute reads this report: install ncu here, or export the report where it"
            " is installed: ncu --import REPORT --csv --page raw --print-units base > counters.csv",
        )
    command = [program, "--import", os.path.abspath(path), "--csv", "--page", "raw"]
    command += ["--print-units", "base", "--nvtx"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BadInput(path, f"{program} took more than {LIMIT} s to export it") from None
        except OSError as error:
            raise BadInput(path, f"{program} cannot be run: {error.strerror or error}") from error
        size = out.tell()
        out.seek(0)
        err.seek(0)
        said = err.read(4096).decode("utf-8", "replace").strip()
        if done.returncode:
            message = said or out.read(4096).decode("utf-8", "replace").strip()
            last = message.splitlines()[-1][:200] if message else "it said nothing"
            raise BadInput(path, f"{program} cannot export it (status {done.returncode}): {last}")
        if size > MOST:
            raise BadInput(path, f"{program} exported {size:,} bytes, more than {MOST:,}")
        return out.read().decode("utf-8-sig", "replace")
