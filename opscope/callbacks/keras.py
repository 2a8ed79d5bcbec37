"""A Keras callback that captures a range of training steps into a profile.

model.fit(x, y, callbacks=[opscope.callbacks.keras.StepRange(10, 15, "run.opscope")])
"""

from __future__ import annotations

from typing import Any

from keras.callbacks import Callback

from opscope.core.capture.steps_per_execution import Executions

from .windows import Ranged


class StepRange(Ranged, Callback):  # type: ignore[misc] # keras is not typed here
    """Captures training steps [start, stop) of ``fit``, counted over all its epochs, into ``path``.

    With ``repeat``, the name of window k's profile ends in ``-k`` (k counts from 0; window 0 has no suffix).
    ``make`` makes another capture instead of the profile. With ``steps_per_execution`` Keras calls back
    only between executions: every execution that holds a step of the range is captured whole, and a warning
    says which steps these are. Making the callback observes the imported frameworks (``opscope.init()``).
    Raises ValueError for an empty window. If the capture cannot start or be written, that is logged, and the
    training goes on.
    """

    _step = 0
    _executions: Executions

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to count steps."""
        self._step, self._executions = 0, Executions()
        self._windows.begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Note that an execution of one or more steps begins with ``batch``."""
        self._executions.begins(batch)
        count = self._executions.expected(*self._told())
        self._windows.comes(self._step, count, "steps_per_execution")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps of the execution; ``batch`` is its last batch, or before Keras 3.11 its first."""
        self._step += self._executions.ends(batch, *self._told())
        self._windows.passed(self._step)

    def on_train_end(self, logs: Any = None) -> None:
        """End the capture with the training."""
        self._windows.finish()

    def _told(self) -> tuple[int | None, int | None]:
        """Return the most steps of an execution and the steps of an epoch; None where Keras does not tell."""
        per_execution = getattr(self.model, "steps_per_execution", None)
        return per_execution, (self.params or {}).get("steps")
