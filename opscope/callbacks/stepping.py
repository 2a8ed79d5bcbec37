"""The part that all frameworks' callbacks share: report steps to the session, capture windows of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from opscope.core.capture import session
from opscope.core.capture.session import Capture

from . import observe, profile
from .guarded import Guarded
from .steprange import StepRange


class Stepping:
    """Counts a training loop's steps and captures [start, stop) of them into ``path``.

    Without ``path`` it only counts steps, for a capture made by something else (``opscope run``, Nsight
    Systems). If ``repeat`` is not 1, the windows are written to ``path`` with ``-0``, ``-1`` … before its
    suffix. A capture that cannot start or be written is logged, and the training goes on. Raises ValueError
    as StepRange does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        start: int = 1,
        stop: int | None = 4,
        warmup: int = 0,
        repeat: int = 1,
        backend: str = "auto",
        force: bool | None = None,
    ) -> None:
        self.number = -1
        self._path = None if path is None else Path(path)
        self._repeat, self._backend, self._force = repeat, backend, force
        self._range: Guarded | None = None
        if path is not None:
            self._range = Guarded(StepRange(start, stop, warmup, repeat, self._make))
        self._open = False
        #: The value of ``session.steps_by_user`` before ``begin``; None while this object counts no steps.
        self._others: bool | None = None

    def _make(self, window: int) -> Capture:
        assert self._path is not None
        path = self._path
        if self._repeat != 1:
            path = path.with_name(f"{path.stem}-{window}{path.suffix}")
        return profile(path, self._backend, self._force)

    def begin(self, model: object = None) -> None:
        """Begin the training of ``model``: until ``end``, only this object counts steps."""
        if model is not None:
            session.trains(model)
        if self._range is not None:
            self._range.begin()
            observe()
        if self._others is None:
            self._others = session.steps_by_user
        session.steps_by_user = True
        self._next(self.number + 1)

    def step_begins(self) -> None:
        """Begin the next step, after ending an open one."""
        self.step_ends()
        self.number += 1
        self._next(self.number)
        session.begin_step(self.number)
        self._open = True

    def step_ends(self) -> None:
        """End the step, if one is open."""
        if self._open:
            self._open = False
            session.end_step()
            self._next(self.number + 1)

    @staticmethod
    def pauses() -> None:
        """Training pauses, for an evaluation for example, until the next step begins."""
        session.no_step_comes()

    def end(self) -> None:
        """End the training, finished or failed, and with it the capture."""
        self.step_ends()
        session.no_step_comes()
        if self._range is not None:
            self._range.finish()
        if self._others is not None:
            session.steps_by_user = self._others
            self._others = None

    def _next(self, number: int) -> None:
        if self._range is not None:
            self._range.at(number)


class Counted:
    """The part of a framework's callback that makes its ``Stepping``; a base before the framework's own."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        start: int = 1,
        stop: int | None = 4,
        **options: Any,
    ) -> None:
        super().__init__()
        self._steps = Stepping(path, start, stop, **options)
