"""Make a running program attachable that was not started so, by Python 3.14's remote execution."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from opscope.core.capture import attach_place

#: The first Python version that can run code in another program, and the seconds to wait for that program.
_FIRST: Final = (3, 14)
_WAIT_S: Final = 15.0
_CODE: Final = """\
try:
    import opscope
    opscope.init(attach=True)
except Exception as error:
    import logging
    logging.getLogger("opscope").warning("opscope: nobody can attach to this program: %s", error)
"""


class Impossible(Exception):
    """The program cannot be made attachable; the text says why."""


def into(pid: int) -> None:
    """Make the program ``pid`` attachable. Raises Impossible.

    Python runs the code between two instructions of the program's main thread, once that runs Python.
    """
    run = getattr(sys, "remote_exec", None)
    if sys.version_info < _FIRST or run is None:
        raise Impossible(
            f"--inject needs Python 3.14 in both programs, and this is {sys.version_info[0]}."
            f"{sys.version_info[1]}; start the program with `opscope run --attachable`"
        )
    try:
        user = os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        raise Impossible(f"{pid}: no such process") from None
    if user != os.geteuid():
        raise Impossible(f"{pid} is another user's process: only its user may attach to it")
    folder = Path(mkdtemp(prefix="opscope-inject-"))  # 0700: nobody else can replace the file
    script = folder / "attach.py"
    try:
        script.write_text(_CODE, encoding="utf-8")
        try:
            run(pid, str(script))
        except (OSError, RuntimeError, ValueError) as error:
            raise Impossible(f"{pid}: Python does not let opscope attach to it: {error}") from None
        until = time.monotonic() + _WAIT_S
        while time.monotonic() < until:
            if any(attach_point.pid == pid for attach_point in attach_place.places()):
                return
            time.sleep(0.1)
        raise Impossible(
            f"{pid} did not become attachable within {_WAIT_S:g} s: its main thread runs no Python, or"
            " opscope is not installed for it"
        )
    finally:
        script.unlink(missing_ok=True)
        folder.rmdir()
