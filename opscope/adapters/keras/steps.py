"""Keras callbacks that record the steps, epochs and phases of ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

from typing import Any

from keras.src.callbacks.callback import Callback

from opscope.core.capture import session
from opscope.core.capture.emit import Emitter
from opscope.core.capture.steps_per_execution import Executions


class Steps(Callback):  # type: ignore[misc] # keras is not typed here
    """Counts steps over all epochs. With ``steps_per_execution`` one range covers several steps.

    It is the last callback: a step begins after the others have run, and if they call ``opscope.step``
    themselves, it is known by then. The adapter calls ``ended`` before the first of them, so a step has ended
    when another callback stops a capture.
    """

    def __init__(self, emitter: Emitter) -> None:
        super().__init__()
        self._emitter = emitter
        self._open: list[bool] = []
        self._number = -1
        self._executions = Executions()
        self._noted: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Continue the step numbers of an earlier ``fit``."""
        self._number = session.current_step() + 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Open a range for the epoch. In light mode its first step begins here, because it waits for its
        batch."""
        self._enter(f"epoch {epoch}")
        if not session.steps_by_user:
            session.step_comes(self._number)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Close the epoch's range."""
        session.no_step_comes()
        self._leave()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin the step, or the first of several steps that Keras runs together."""
        self._executions.begins(batch)
        if not session.steps_by_user:
            session.begin_step(self._number)

    def ended(self, batch: int) -> None:
        """End the step, or the last of several. ``batch`` is the number that Keras passes."""
        per_execution = getattr(self.model, "steps_per_execution", None)
        steps = self._executions.ends(batch, per_execution, (self.params or {}).get("steps"))
        self._number += steps
        if session.steps_by_user:
            return
        session.end_step()
        recorder = session.recorder()
        if steps > 1 and recorder is not None and recorder is not self._noted:
            self._noted = recorder
            recorder.note(
                "info",
                f"Keras ran {steps} steps at a time (steps_per_execution): each step range covers "
                "that many steps and has the number of the first",
            )

    def on_test_begin(self, logs: Any = None) -> None:
        """Open a range for the evaluation."""
        session.no_step_comes()
        self._enter("evaluate")

    def on_test_end(self, logs: Any = None) -> None:
        """Close the evaluation's range."""
        self._leave()

    def on_predict_begin(self, logs: Any = None) -> None:
        """Open a range for the prediction."""
        session.no_step_comes()
        self._enter("predict")

    def on_predict_end(self, logs: Any = None) -> None:
        """Close the prediction's range."""
        self._leave()

    def _enter(self, text: str) -> None:
        active = self._emitter.active
        self._open.append(active)
        if active:
            self._emitter.push(self._emitter.prepare(text, "phase"))

    def _leave(self) -> None:
        if self._open and self._open.pop():
            self._emitter.pop()
