"""From the program's end to the profile: a signal loses nothing, and is answered by a line."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from opscope.backends import kept

from . import common

#: What ends a command that nobody wants to wait for.
SIGNALS: Final = frozenset(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_CAN_WAIT: Final = hasattr(signal, "sigwait") and hasattr(signal, "pthread_sigmask")


class Interruptible:
    """While a profile is made of ``folder``: a signal ends this process with the program's ``status``.

    Python would handle a signal between two of its own instructions, and Polars may be busy for long:
    so the signals are blocked, and a thread waits for them. Made before they are blocked first.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._status = 0
        self._lock = threading.Lock()
        self._over = self._stands = False
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if _CAN_WAIT else set()
        # what was ignored before us (nohup, a shell's background job) stays so; a wait would get it
        self._signals = {one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN}
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    def begin(self, status: int) -> None:
        """The program has ended with ``status``."""
        self._status = status
        if _CAN_WAIT and self._signals:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
            self._thread = threading.Thread(target=self._wait, name="opscope-signals", daemon=True)
            self._thread.start()

    def stands(self, deed: Callable[[], object]) -> None:
        """The profile stands, or there is none to make: ``deed`` deletes what it was made of."""
        with self._lock:
            self._stands = True
            deed()

    def line(self, name: str) -> str:
        """What is said of an end by the signal ``name``."""
        return f"{name} while the profile was made; {kept.left(self._folder)}"

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
            signal.pthread_kill(thread.ident, next(iter(self._signals)))  # wakes it
            self._ends.set()
            thread.join()
        if _CAN_WAIT:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        return False

    def _wait(self) -> None:
        number = signal.sigwait(self._signals)
        if self._over:
            self._ends.wait()  # its id is good until then
            return
        with self._lock:
            if not self._stands:
                common.say(self.line(signal.Signals(number).name))
                for half in self._folder.glob(".*.tmp"):
                    kept.discard(half)
                if not kept.parts(self._folder):
                    kept.discard(self._folder)
            os._exit(self._status)
