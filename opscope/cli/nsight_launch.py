"""Run a command under ``nsys profile``: the program keeps its own streams, status and signals.

nsys runs in a session of its own, so that a key pressed at the terminal does not end it, and its messages
go to a file. The program runs in a session of its own too (nsys makes that), so every signal is passed on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.backends.nsys import STARTER

from .launch import FORWARDED, SI_KERNEL

#: nsys uses low file numbers itself, and passes on files with numbers from here on to the program.
_FIRST: Final = 200


@dataclass(slots=True)
class Ended:
    """How a run under nsys ended. ``status`` is the program's, as a shell reports it; None if it never began.

    ``failed`` is the error number with which it could not be started, ``nsys`` the status of nsys itself.
    """

    status: int | None
    nsys: int
    failed: int | None = None


def run(
    nsys: Sequence[str],
    command: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    signals: Collection[signal.Signals] = (),
    started: Callable[[int], None] = lambda pid: None,
) -> Ended:
    """Run ``nsys … command`` until both have ended; what nsys prints goes to the file ``log``.

    ``started`` is called with the program's process id. The signals ``signals`` stay blocked afterwards.
    Raises OSError if nsys cannot be started.
    """
    awaited = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with contextlib.ExitStack() as open_files:
            read, write = os.pipe()
            reader = open_files.enter_context(os.fdopen(read, "rb", 0))
            given = [_high(file, open_files) for file in (0, 1, 2, write)]
            os.close(write)
            messages = open_files.enter_context(log.open("wb"))
            tool = subprocess.Popen(
                [*nsys, sys.executable, "-I", "-S", str(STARTER), *map(str, given), *command],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=subprocess.STDOUT,
                pass_fds=given,
                start_new_session=True,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
            return _wait(tool, _Program(reader.fileno(), started), awaited)
    finally:
        while signal.sigtimedwait(awaited, 0) is not None:
            pass  # a signal meant for the program, which has ended
        signal.signal(signal.SIGCHLD, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, {*before, *signals})


def _high(file: int, open_files: contextlib.ExitStack) -> int:
    """Return a copy of the file with a number that nsys leaves alone; ``/dev/null`` if it is closed."""
    try:
        copy = fcntl.fcntl(file, fcntl.F_DUPFD, _FIRST)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        copy = fcntl.fcntl(null, fcntl.F_DUPFD, _FIRST)
        os.close(null)
    open_files.callback(os.close, copy)
    return copy


class _Program:
    """The starter's messages about the program, read by a thread that wakes the main thread at each."""

    def __init__(self, file: int, started: Callable[[int], None]) -> None:
        self._file, self._started = file, started
        self.starter: int | None = None
        self.pid: int | None = None
        self.status: int | None = None
        self.failed: int | None = None
        self._news = b""

    def read(self, wait: float | None) -> None:
        """Take the messages that have come, waiting at most ``wait`` seconds for the first (None: for
        ever)."""
        while select.select([self._file], [], [], wait)[0]:
            data = os.read(self._file, 4096)
            if not data:
                return
            self._news += data
            *lines, self._news = self._news.split(b"\n")
            for line in lines:
                word, _, number = line.partition(b" ")
                self._learn(word, int(number))
            if self.over:
                return
            wait = 0

    def _learn(self, word: bytes, number: int) -> None:
        if word == b"starter":
            self.starter = number
        elif word == b"pid":
            self.pid = number
            self._started(number)
        elif word == b"failed":
            self.failed = number
        elif word == b"exit":
            code = os.waitstatus_to_exitcode(number)
            self.status = 128 - code if code < 0 else code

    @property
    def over(self) -> bool:
        return self.status is not None or self.failed is not None

    def send(self, number: int, from_terminal: bool) -> None:
        """Send a signal to the program; one from the terminal to its whole process group, as a terminal
        does."""
        if self.pid is None or self.over:
            return
        with contextlib.suppress(ProcessLookupError):
            if from_terminal and self.starter is not None:
                os.killpg(self.starter, number)
            else:
                os.kill(self.pid, number)


def _wait(
    tool: subprocess.Popen[bytes], program: _Program, awaited: Collection[signal.Signals]
) -> Ended:
    """Wait for nsys and the program, whichever ends first, and pass signals on meanwhile."""
    main = threading.get_ident()
    stop, wake = os.pipe()

    def watch() -> None:
        while not program.over:
            ready, _, _ = select.select([program._file, stop], [], [])
            if stop in ready:
                return
            program.read(0)
            signal.pthread_kill(main, signal.SIGCHLD)

    watcher = threading.Thread(target=watch, name="opscope-nsys", daemon=True)
    watcher.start()
    waiting: list[tuple[int, bool]] = []  # signals that came before the program began
    try:
        while True:
            if program.pid is not None:
                for number, from_terminal in waiting:
                    program.send(number, from_terminal)
                waiting.clear()
            if tool.poll() is not None and (program.over or not _runs(program.starter)):
                break
            # nsys may end long before the program; if the starter is then killed, nothing wakes this thread
            limit = 1.0 if tool.returncode is not None else None
            info = _next(awaited, limit)
            if info is not None and info.si_signo != signal.SIGCHLD:
                waiting.append((info.si_signo, info.si_code == SI_KERNEL))
    finally:
        os.write(wake, b".")
        watcher.join()
        for file in (stop, wake):
            os.close(file)
    program.read(0)
    status = program.status
    if status is None and program.pid is not None:
        status = 128 + signal.SIGKILL  # the starter was killed with the program
    return Ended(status, tool.returncode or 0, program.failed)


def _next(awaited: Collection[signal.Signals], limit: float | None) -> signal.struct_siginfo | None:
    if limit is None:
        return signal.sigwaitinfo(awaited)
    return signal.sigtimedwait(awaited, limit)


def _runs(pid: int | None) -> bool:
    """Whether the process lives; False for None."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
