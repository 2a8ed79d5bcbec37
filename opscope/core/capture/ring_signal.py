"""Write a ring at a signal that the user has named, never replacing a handler of the program."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from .ring_recorder import RingRecorder

_log = logging.getLogger(__name__)

#: Signals that may not be named: they end the program, stop it, or report its faults.
_REFUSED: Final = frozenset(
    f"SIG{name}"
    for name in (
        *("KILL", "STOP", "SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS"),
        *("INT", "TERM", "CHLD", "PIPE", "ALRM", "VTALRM", "PROF", "QUIT", "TSTP", "CONT"),
    )
)


def parse_signal(name: str) -> signal.Signals:
    """Return the signal that ``USR2`` or ``SIGUSR2`` names. Raises ValueError if it may not be used."""
    full = name.strip().upper()
    full = full if full.startswith("SIG") else f"SIG{full}"
    if full in _REFUSED:
        raise ValueError(f"{full} has another use; name one that has none, such as USR2")
    number = getattr(signal, full, None)
    if not isinstance(number, signal.Signals):
        raise ValueError(f"no signal {name!r} on this system; name one such as USR2")
    return number


class OnSignal:
    """Asks ``recorder()`` for a dump at each signal ``number``. It uses a signal that the program leaves at
    its default. A handler that the program installs later replaces ours, and an existing handler keeps its
    signal. Python runs handlers on its main thread between two of its instructions; ours only sets a flag."""

    def __init__(self, number: signal.Signals, recorder: Callable[[], RingRecorder | None]) -> None:
        self.number = number
        self._recorder = recorder
        self._mine: Any = None

    def install(self) -> bool:
        """Install the handler; False, with the reason in the log, if the signal is not free."""
        if threading.current_thread() is not threading.main_thread():
            _log.warning(
                "opscope: %s writes no profile: only Python's main thread can hear signals",
                self.number.name,
            )
            return False
        there = signal.getsignal(self.number)
        if there is not signal.SIG_DFL:
            _log.warning(
                "opscope: %s writes no profile: the program has a handler for it, which stays",
                self.number.name,
            )
            return False
        mine = self._mine = self._hear
        signal.signal(self.number, mine)
        return True

    def remove(self) -> None:
        """Restore the default, unless the program has installed a handler of its own meanwhile."""
        mine, self._mine = self._mine, None
        if mine is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(self.number) == mine:
            signal.signal(self.number, signal.SIG_DFL)
        else:
            _log.warning(
                "opscope: the program has taken %s since: it has written no profile from then on",
                self.number.name,
            )

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        recorder = self._recorder()
        if recorder is not None:
            recorder.ask(f"{self.number.name} came")
