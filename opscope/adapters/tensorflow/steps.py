"""Count the steps of a custom training loop: runs of functions that differentiate and update variables.

Steps are counted even while nothing listens, as a capture may be waiting for its first step.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from opscope.core.capture import session
from opscope.core.capture.hooked_steps import note_hook

_NUMBER: Final = re.compile(r"_[0-9]+\Z")
#: The module whose ``fit`` reports its steps through callbacks.
_KERAS: Final = "keras.src.backend.tensorflow.trainer"
#: Limit of frames between a run of a graph and ``fit``.
_DEPTH: Final = 40


class Steps:
    """Counts the steps of each thread.

    With several functions (a GAN has two) the last function of a round ends the step. Which one is the last
    is known once a function runs for the second time, which ends the first step. If the user calls
    ``opscope.step()``, or Keras's ``fit`` runs, only those steps count.
    """

    def __init__(self, trains: Callable[[str, Callable[[], Any]], bool]) -> None:
        self._trains = trains
        self._known: dict[str, str | None] = {}
        self._local = _Local()
        #: The recorders that have the note on how steps are counted (False), or may be wrong (True).
        self._noted: dict[bool, Any] = {}

    def begins(self, name: str, graph: Callable[[], Any]) -> str | None:
        """Note that function ``name`` is about to run.

        Return the argument for ``ended``, or None if the run is not counted as training.
        """
        if name not in self._known:
            # the name without the number of its trace: traces for other sizes are the same function
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
        self._note(False, kind)
        return kind

    def ended(self, kind: str) -> None:
        """Note that the function has run, and end the step if it is the last of a round."""
        local = self._local
        if kind == local.last and not session.steps_by_user:
            others = local.before is not None and set(local.round) != local.before
            if others:
                self._note(True, ", ".join(sorted({*local.round, *(local.before or ())})))
            local.before = set(local.round)
            local.round.clear()
            session.step()

    def _note(self, uneven: bool, functions: str) -> None:
        """Note in the recording, once, how steps are counted, or that they may be wrong (``uneven``)."""
        recorder = session.recorder()
        if recorder is None or self._noted.get(uneven) is recorder:
            return
        self._noted[uneven] = recorder
        note_hook()
        if uneven:
            recorder.note(
                "warning",
                f"training functions do not run equally often ({functions}), so the steps counted "
                "here are not iterations: call opscope.step() at the beginning of each iteration",
            )
        else:
            recorder.note(
                "info",
                f"a step is a run of {functions}, or a round of such functions; if gradients are "
                "accumulated over several runs, call opscope.step() at the beginning of each iteration",
            )


class _Local(threading.local):
    """The functions that a thread has run since its last step, and which one ends a step ("" if unknown)."""

    def __init__(self) -> None:
        self.begun = False
        self.round: list[str] = []
        #: The functions that ran in the previous round.
        self.before: set[str] | None = None
        self.last = ""


def _in_fit() -> bool:
    frame, depth = sys._getframe(2), _DEPTH
    while frame is not None and depth:
        if frame.f_code.co_name == "fit" and frame.f_globals.get("__name__") == _KERAS:
            return True
        frame, depth = frame.f_back, depth - 1  # type: ignore[assignment]
    return False
