"""Steps of a loop of one's own: runs of functions that differentiate and update variables.

Always there, also when nothing listens: a capture may be waiting for its first step.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from opscope.core.capture import session

_NUMBER: Final = re.compile(r"_[0-9]+\Z")
#: Whose ``fit`` tells its steps by callbacks.
_KERAS: Final = "keras.src.backend.tensorflow.trainer"
#: Frames between a run of a graph and ``fit``.
_DEPTH: Final = 40


class Steps:
    """Each thread's. With several functions (a GAN's two) the last of a round ends the step.

    Which is the last is known once one of them runs for the second time: that ends the first step.
    Where the user calls ``opscope.step()``, or Keras's ``fit`` runs, that alone counts.
    """

    def __init__(self, trains: Callable[[str, Callable[[], Any]], bool]) -> None:
        self._trains = trains
        self._known: dict[str, str | None] = {}
        self._local = _Local()
        #: The recorders that were told how steps are counted, and that they may be wrong.
        self._said: dict[bool, Any] = {}

    def begins(self, name: str, graph: Callable[[], Any]) -> str | None:
        """Function ``name`` is about to run; what to give to ``ended`` where that is training."""
        if name not in self._known:
            # a function's name without the number of its trace: other sizes are the same step
            self._known[name] = _NUMBER.sub("", name) if self._trains(name, graph) else None
        kind = self._known[name]
        if kind is None or session.steps_by_user or _in_fit():
            return None
        local = self._local
        if not local.begun:
            local.begun = True
            session.begin_step()
        elif kind in local.round:
            local.last = local.round[-1]
            local.round.clear()
            session.step()
        local.round.append(kind)
        self._say(False, kind)
        return kind

    def ended(self, kind: str) -> None:
        """It has run."""
        local = self._local
        if kind == local.last and not session.steps_by_user:
            others = local.before is not None and set(local.round) != local.before
            if others:
                self._say(True, ", ".join(sorted({*local.round, *(local.before or ())})))
            local.before = set(local.round)
            local.round.clear()
            session.step()

    def _say(self, uneven: bool, functions: str) -> None:
        """Tell the recording, once, by what steps are counted."""
        recorder = session.recorder()
        if recorder is None or self._said.get(uneven) is recorder:
            return
        self._said[uneven] = recorder
        if uneven:
            recorder.note(
                "warning",
                f"functions that train do not run equally often ({functions}), so that what is taken "
                "for a step is none: opscope.step() at the beginning of each iteration tells them",
            )
        else:
            recorder.note(
                "info",
                f"a step is a run of {functions}, or a round of such functions; where gradients are "
                "accumulated over several, opscope.step() at the beginning of each iteration tells steps",
            )


class _Local(threading.local):
    """What a thread has run since the last step ended, and what ends a step ("": not known yet)."""

    def __init__(self) -> None:
        self.begun = False
        self.round: list[str] = []
        #: What ran in the round before.
        self.before: set[str] | None = None
        self.last = ""


def _in_fit() -> bool:
    frame, depth = sys._getframe(2), _DEPTH
    while frame is not None and depth:
        if frame.f_code.co_name == "fit" and frame.f_globals.get("__name__") == _KERAS:
            return True
        frame, depth = frame.f_back, depth - 1  # type: ignore[assignment]
    return False
