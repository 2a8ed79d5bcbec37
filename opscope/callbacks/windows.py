"""What the callbacks ``StepRange`` of several frameworks share: profiles of windows, faults, warnings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from opscope.core.capture.session import Capture

from . import observe, profile
from .guarded import Guarded
from .steprange import State, StepRange

_log = logging.getLogger(__name__)


class Windows:
    """The windows of a training's steps, each with a profile of its own.

    Window k's name ends in ``-k`` (k counts from 0; window 0 has no suffix). ``make`` makes another capture
    instead. A capture that cannot start or be written is logged, and the training goes on. Making this
    observes the imported frameworks. Raises ValueError for an empty window.
    """

    def __init__(
        self,
        start: int,
        stop: int,
        path: str | os.PathLike[str],
        *,
        warmup: int = 0,
        repeat: int = 1,
        backend: str = "auto",
        force: bool | None = None,
        make: Callable[[int], Capture] | None = None,
    ) -> None:
        self._path = Path(path)
        self._backend = backend
        self._force = force
        self._range = Guarded(StepRange(start, stop, warmup, repeat, make or self._profile))
        self._next = 0
        self._reached = False
        self._warned = False
        observe()

    @property
    def state(self) -> State:
        """The state of the range."""
        return self._range.state

    def begin(self) -> None:
        """A training begins: step 0 is next."""
        self._next, self._reached = 0, False
        self._range.begin()
        self._at(0, 1)

    def comes(self, number: int, count: int, why: str) -> None:
        """Step ``number`` begins, or ``count`` steps that run together, because of ``why``."""
        self._next = number + count
        self._at(number, count)
        if count > 1 and not self._warned and self.state is State.CAPTURING:
            self._warned = True
            _log.warning(
                "%d steps run at a time (%s): whole executions are captured, beginning with steps %d to %d",
                count, why, number, number + count - 1,
            )  # fmt: skip

    def passed(self, number: int | None = None) -> None:
        """The steps given to ``comes`` have run. ``number``: the next step, if fewer ran."""
        if number is not None:
            self._next = number
        self._at(self._next, 1)

    def finish(self) -> None:
        """The training is over, for whatever reason. A second call does nothing."""
        trained, self._next = self._next, 0
        self._range.finish()
        if trained and not (self._reached or self._range.broken):
            _log.warning(
                "the training ended after %d steps: steps [%d, %s) were not reached, nothing is captured",
                trained, self._range.steps.start, self._range.steps.stop,
            )  # fmt: skip

    def _profile(self, window: int) -> Capture:
        path = self._path
        if window:
            path = path.with_name(f"{path.stem}-{window}{path.suffix}")
        return profile(path, self._backend, self._force)

    def _at(self, number: int, count: int) -> None:
        self._range.at(number, count)
        self._reached |= self.state is State.CAPTURING


class Ranged:
    """The part of a framework's callback that makes its windows; a base before the framework's own."""

    def __init__(
        self,
        start: int,
        stop: int,
        path: str | os.PathLike[str] = "run.opscope",
        *,
        warmup: int = 0,
        repeat: int = 1,
        backend: str = "auto",
        force: bool | None = None,
        make: Callable[[int], Capture] | None = None,
    ) -> None:
        super().__init__()
        self._windows = Windows(
            start,
            stop,
            path,
            warmup=warmup,
            repeat=repeat,
            backend=backend,
            force=force,
            make=make,
        )

    @property
    def state(self) -> State:
        """The state of the range."""
        return self._windows.state
