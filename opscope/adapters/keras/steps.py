"""The callback that tells steps, epochs and phases of ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

from typing import Any

from keras.src.callbacks.callback import Callback

from opscope.core import session
from opscope.core.emit import Emitter


class Steps(Callback):  # type: ignore[misc] # keras is not typed here
    """Steps are counted over all epochs. With ``steps_per_execution`` one range holds several."""

    def __init__(self, emitter: Emitter) -> None:
        super().__init__()
        self._emitter = emitter
        self._open: list[bool] = []
        self._number = -1
        self._begun = 0
        self._noted = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Steps go on where an earlier ``fit`` ended."""
        self._number = session.current_step() + 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """A range for the epoch."""
        self._enter(f"epoch {epoch}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Its end."""
        self._leave()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """The step begins, or the first of several."""
        self._begun = batch
        if not session.steps_by_user:
            session.begin_step(self._number)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """It ends: ``batch`` is the last one of the execution."""
        many = batch - self._begun + 1
        self._number += many
        if session.steps_by_user:
            return
        session.end_step()
        if many > 1 and not self._noted:
            self._noted = True
            recorder = session.recorder()
            if recorder is not None:
                recorder.note(
                    "info",
                    f"Keras ran {many} steps at a time (steps_per_execution): each step range is of "
                    "so many, and has the number of the first",
                )

    def on_test_begin(self, logs: Any = None) -> None:
        """A range for the evaluation."""
        self._enter("evaluate")

    def on_test_end(self, logs: Any = None) -> None:
        """Its end."""
        self._leave()

    def on_predict_begin(self, logs: Any = None) -> None:
        """A range for the prediction."""
        self._enter("predict")

    def on_predict_end(self, logs: Any = None) -> None:
        """Its end."""
        self._leave()

    def _enter(self, text: str) -> None:
        active = self._emitter.active
        self._open.append(active)
        if active:
            self._emitter.push(self._emitter.prepare(text, "phase"))

    def _leave(self) -> None:
        if self._open and self._open.pop():
            self._emitter.pop()
