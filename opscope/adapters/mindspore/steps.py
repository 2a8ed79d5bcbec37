"""Find the end of each training step: the call of the optimizer, of the last one if there are several."""

from __future__ import annotations

import weakref
from typing import Any

from opscope.core.capture import session
from opscope.core.capture.hooked_steps import next_step


class Steps:
    """Ends a training step after the optimizer's call; with several optimizers, after the last one of a
    round.

    A round is complete once an optimizer steps a second time. From then on the optimizer that was last in the
    round ends each training step. Gradients that are accumulated belong to the step that the optimizer ends.
    Where the user calls ``opscope.step()``, only that call counts.
    """

    def __init__(self) -> None:
        self._round: list[weakref.ref[Any]] = []
        self._last: weakref.ref[Any] | None = None
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    @staticmethod
    def begin() -> None:
        """Begin step 0 if none has begun on this thread."""
        if session.steps_by_user or session.are_steps_held() or session.current_step() >= 0:
            return
        session.begin_step()

    def made(self, optimizer: Any) -> None:
        """Count an optimizer that the program has made."""
        self._known.add(optimizer)

    def stepped(self, optimizer: Any) -> None:
        """Count a call of ``optimizer``, which may end the training step."""
        if session.steps_by_user or session.are_steps_held():
            return
        if self._ends(optimizer):
            next_step()

    def _ends(self, optimizer: Any) -> bool:
        last = None if self._last is None else self._last()
        if last is optimizer and not self._round:
            return True
        if any(reference() is optimizer for reference in self._round):  # a new round begins
            self._last = self._round[-1]
            self._round = [weakref.ref(optimizer)]
            return self._last() is optimizer
        self._round.append(weakref.ref(optimizer))
        if last is optimizer:
            self._round = []
            return True
        if last is None and len(self._round) >= len(self._known):
            self._last = self._round[-1]
            self._round = []
            return True
        return False
