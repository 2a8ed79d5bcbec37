"""Handle signals while the profile is made: end at once, keep the recording, and say where it is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from opscope.backends import recording_folder

from . import common

#: The signals that ask a command to end.
SIGNALS: Final = frozenset(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_CAN_WAIT: Final = hasattr(signal, "sigwait") and hasattr(signal, "pthread_sigmask")


class Interruptible:
    """End this process with the program's ``status`` on a signal, while a profile is made of ``folder``.

    Python handles a signal only between two of its own instructions, and a call of Polars may take long.
    So the signals are blocked, and a thread waits for them. Create it before the signals are first blocked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._status = 0
        self._lock = threading.Lock()
        self._over = self._stands = False
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if _CAN_WAIT else set()
        # a signal that was ignored before (nohup, a shell's background job) stays ignored: sigwait would
        # receive it
        self._signals = {
            number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    def begin(self, status: int) -> None:
        """Start waiting for signals: the program has ended with ``status``."""
        self._status = status
        if _CAN_WAIT and self._signals:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
            self._thread = threading.Thread(target=self._wait, name="opscope-signals", daemon=True)
            self._thread.start()

    def stands(self, deed: Callable[[], object]) -> None:
        """Call ``deed``, which deletes the parts, because the profile is complete or there is none to
        make."""
        with self._lock:
            self._stands = True
            deed()

    def line(self, name: str) -> str:
        """Return the message after the signal ``name``."""
        return f"{name} while the profile was written; {recording_folder.left(self._folder)}"

    def __enter__(self) -> Interruptible:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self._over = True
        thread = self._thread
        if thread is not None and thread.ident is not None:
            signal.pthread_kill(thread.ident, next(iter(self._signals)))  # wake the thread
            self._ends.set()
            thread.join()
        if _CAN_WAIT:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        return False

    def _wait(self) -> None:
        number = signal.sigwait(self._signals)
        if self._over:
            self._ends.wait()  # the thread's id stays valid until the kill has returned
            return
        with self._lock:
            if not self._stands:
                common.say(self.line(signal.Signals(number).name))
                for half in self._folder.glob(".*.tmp"):
                    recording_folder.discard(half)
                if not recording_folder.parts(self._folder):
                    recording_folder.discard(self._folder)
            os._exit(self._status)
