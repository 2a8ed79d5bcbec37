"""End the program when the time of ``opscope dlprof --duration`` is over, once all is recorded."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Tells a process when it must stop recording, because the program is ended afterwards.
VARIABLE: Final = "OPSCOPE_RUN_ENDS"
#: Prefix of the files by which processes say that they record until then; removed afterwards.
_UNTIL: Final = "until-"
#: Seconds that processes get to write what they recorded, and to end after SIGTERM.
WRITING_S, ENDING_S = 60.0, 10.0
_LOOK_S: Final = 0.05


class ProgramEnd:
    """Ends the program ``seconds`` after its start: SIGTERM to it and to all processes that it started.
    Processes that live 10 s later are killed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        #: A line on what ended the program; empty if nothing has.
        self.note = ""

    def started(self, pid: int, folder: Path) -> None:
        """Begin to count: the program runs as ``pid``, and its processes record into ``folder``."""
        self._thread = threading.Thread(
            target=self._wait, args=(pid, folder), name="opscope-end", daemon=True
        )
        self._thread.start()

    def ended(self) -> None:
        """Stop, because the program has ended; wait for processes that it started and that must end too."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _wait(self, pid: int, folder: Path) -> None:
        if self._over.wait(self._seconds):
            return
        until = time.monotonic() + WRITING_S
        while _writing(folder) and time.monotonic() < until:
            if self._over.wait(_LOOK_S):
                return
        family = [pid, *_below(pid)]
        self.note = "SIGTERM ended the program, whose status is 143 unless it handles the signal"
        _send(family, signal.SIGTERM)
        until = time.monotonic() + ENDING_S
        while left := [process for process in family if _is_there(process)]:
            if time.monotonic() > until:
                self.note = (
                    f"what had not ended {ENDING_S:g} s after SIGTERM was killed (status 137)"
                )
                _send(left, signal.SIGKILL)
                return
            time.sleep(_LOOK_S)


def hold(folder: str) -> Path:
    """Say that this process records; return the file to remove once everything is written."""
    path = Path(folder, f"{_UNTIL}{os.getpid()}")
    with suppress(OSError):  # the folder is gone: so is the recording
        path.touch()
    return path


def _writing(folder: Path) -> bool:
    """Whether a living process still records into the folder."""
    numbers = [path.name.removeprefix(_UNTIL) for path in folder.glob(f"{_UNTIL}*")]
    return any(_is_there(int(number)) for number in numbers if number.isdecimal())


def _is_there(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        state = (
            Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        )
    except (OSError, IndexError):
        return False
    return state != "Z"


def _below(pid: int) -> Iterator[int]:
    """Yield the children of a process, then theirs."""
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/children").read_text("ascii")
            for child in map(int, text.split()):
                yield child
                yield from _below(child)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
