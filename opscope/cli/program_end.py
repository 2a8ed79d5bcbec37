"""End the program when the time of ``opscope dlprof --duration`` is over, once all is recorded."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Tells a process when it must stop recording, because the program is ended afterwards.
VARIABLE: Final = "OPSCOPE_RUN_ENDS"
#: Prefix of the files by which processes say that they record until the program's end; they are removed
#: afterwards.
_UNTIL: Final = "until-"
#: Seconds that processes get to write what they recorded, and to end after SIGTERM.
WRITING_S, ENDING_S = 60.0, 10.0
_LOOK_S: Final = 0.05


class ProgramEnd:
    """Ends the program ``seconds`` after its start: SIGTERM to it and to all processes that it started.

    What has not ended 10 s later is killed. Processes detached before, whose parent has ended, continue.
    """

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
        self.note = "SIGTERM ended the program, whose status is 143 unless it handles the signal"
        until = time.monotonic() + ENDING_S
        asked, left = set[int](), [pid]
        while left:
            # a process that ignores the signal may start others meanwhile
            family = {process for parent in left for process in (parent, *_below(parent))}
            _send(family - asked, signal.SIGTERM)
            asked |= family
            left = [process for process in asked if _is_there(process)]
            if left and time.monotonic() > until:
                self.note = (
                    f"what had not ended {ENDING_S:g} s after SIGTERM was killed (status 137)"
                )
                _send(left, signal.SIGKILL)
                return
            time.sleep(_LOOK_S)


def hold(folder: str) -> Path:
    """Say that this process records; return the file to remove once everything is written."""
    path = Path(folder, f"{_UNTIL}{os.getpid()}")
    with suppress(OSError):  # the folder and its recording are gone
        path.write_text(_stack(os.getpid()), "ascii")
    return path


def _writing(folder: Path) -> bool:
    """Whether a living process still records into the folder."""
    return any(map(_holds, folder.glob(f"{_UNTIL}*")))


def _holds(path: Path) -> bool:
    """Whether the process that a file is of lives, and has not become another program by ``exec``."""
    number = path.name.removeprefix(_UNTIL)
    if not number.isdecimal() or not _is_there(int(number)):
        return False
    try:
        return path.read_text("ascii") in ("", _stack(int(number)))
    except OSError:  # it was removed, or we may not read it
        return path.exists()


def _is_there(pid: int) -> bool:
    """Whether a process lives; one that has ended and is not yet reaped does not."""
    return _stat(pid)[:1] not in ([], ["Z"])


def _stack(pid: int) -> str:
    """Return where a process's stack begins; this changes once the process runs another program. Empty if
    unknown."""
    return "".join(_stat(pid)[25:26])


def _stat(pid: int) -> list[str]:
    """Return the system's fields on a process, from its state on; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _below(pid: int) -> Iterator[int]:
    """Yield the children of a process, then theirs."""
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/children").read_text("ascii")
            for child in map(int, text.split()):
                yield child
                yield from _below(child)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
