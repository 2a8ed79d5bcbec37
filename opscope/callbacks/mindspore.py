"""A MindSpore callback that captures a range of training steps into a profile.

model.train(1, data, callbacks=[opscope.callbacks.mindspore.StepRange(10, 15, "run.opscope")])
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindspore.train.callback import Callback

from opscope.core.capture import trainings
from opscope.core.capture.session import Capture

from . import observe, profile
from .steprange import State
from .steprange import StepRange as _Range

_log = logging.getLogger(__name__)


class StepRange(Callback):  # type: ignore[misc] # mindspore is not typed here
    """Captures steps [start, stop) of ``Model.train`` or ``fit``, counted from 0 over all its epochs.

    Step n is the one that MindSpore calls ``cur_step_num`` n + 1. The profile is ``path``; with ``repeat``,
    window k's name ends in ``-k`` (k counts from 0; window 0 has no suffix). ``make`` makes another capture
    instead. The profile is complete when the training ends for any reason.

    With dataset sink in graph mode MindSpore calls back once for all steps that it sinks: then every
    execution that holds a step of the range is captured whole, and a warning says which steps these are.
    Making the callback observes the imported frameworks (``opscope.init()``). Raises ValueError for an empty
    window. If the capture cannot start or be written, that is logged, and the training goes on.
    """

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
        self._path = Path(path)
        self._backend = backend
        self._force = force
        self._range = _Range(start, stop, warmup, repeat, make or self._profile)
        self._done = 0
        self._first = 0
        self._next = 0
        self._entered = 0
        self._reached = False
        self._broken = False
        self._warned = False
        observe()

    @property
    def state(self) -> State:
        """The state of the range."""
        return self._range.state

    def attach(self) -> StepRange:
        """Add this callback to the next ``Model.train`` or ``fit`` of the program, and return it.

        opscope adds it by itself, so the call of ``train`` need not be changed.
        """
        trainings.wait("mindspore", self)
        return self

    def __enter__(self) -> StepRange:
        self._entered += 1  # an evaluation between epochs enters the callbacks again
        return self

    def __exit__(self, *error: object) -> None:
        """End the capture with the training, also after an exception."""
        self._entered -= 1
        if not self._entered:
            self._finish()

    def on_train_begin(self, run_context: Any) -> None:
        """Begin to count steps."""
        # a training that MindSpore resumes after a fault begins at the number that it reached
        self._first = self._done = int(run_context.original_args().cur_step_num)
        self._next, self._reached, self._broken = 0, False, False
        self._at(0, 1)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Note that a step begins, or several that MindSpore runs together."""
        begun, last = self._done, int(run_context.original_args().cur_step_num)
        many = max(last - begun, 1)
        number = begun - self._first
        self._done = last
        self._next = number + many
        self._at(number, many)
        if many > 1 and not self._warned and self.state is State.CAPTURING:
            self._warned = True
            _log.warning(
                "MindSpore runs %d steps at a time (dataset sink): whole executions are captured, "
                "beginning with steps %d to %d",
                many, number, number + many - 1,
            )  # fmt: skip

    def on_train_step_end(self, run_context: Any) -> None:
        """Count the step."""
        self._at(self._next, 1)

    def on_train_end(self, run_context: Any) -> None:
        """End the capture with the training."""
        self._finish()

    def _profile(self, window: int) -> Capture:
        path = self._path
        if window:
            path = path.with_name(f"{path.stem}-{window}{path.suffix}")
        return profile(path, self._backend, self._force)

    def _at(self, number: int, many: int) -> None:
        if self._broken:
            return
        try:
            self._range.at(number, many)
        except Exception:  # noqa: BLE001 - a capture that fails must not stop the training
            self._fail()
        self._reached |= self.state is State.CAPTURING

    def _finish(self) -> None:
        trainings.leave("mindspore", self)
        trained, self._next = self._next, 0
        try:
            self._range.finish()
        except Exception:  # noqa: BLE001 - the same
            self._fail()
        if trained and not (self._reached or self._broken):
            _log.warning(
                "the training ended after %d steps: steps [%d, %s) were not reached, nothing is captured",
                trained, self._range.start, self._range.stop,
            )  # fmt: skip

    def _fail(self) -> None:
        self._broken = True
        _log.exception("opscope: the steps of a training are not captured further")
