"""A MindSpore callback that captures a range of training steps into a profile.

model.train(1, data, callbacks=[opscope.callbacks.mindspore.StepRange(10, 15, "run.opscope")])
"""

from __future__ import annotations

from typing import Any

from mindspore.train.callback import Callback

from opscope.core.capture import trainings

from .windows import Ranged


class StepRange(Ranged, Callback):  # type: ignore[misc] # mindspore is not typed here
    """Captures steps [start, stop) of ``Model.train`` or ``fit``, counted from 0 over all its epochs.

    Step n is the one that MindSpore calls ``cur_step_num`` n + 1. The profile is ``path``; with ``repeat``,
    window k's name ends in ``-k`` (k counts from 0; window 0 has no suffix). ``make`` makes another capture
    instead. The profile is complete when the training ends for any reason.

    With dataset sink in graph mode MindSpore calls back once for all steps that it sinks: then every
    execution that holds a step of the range is captured whole, and a warning says which steps these are.
    Making the callback observes the imported frameworks (``opscope.init()``). Raises ValueError for an empty
    window. If the capture cannot start or be written, that is logged, and the training goes on.
    """

    _done = _first = _entered = 0

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
        self._windows.begin()

    def on_train_step_begin(self, run_context: Any) -> None:
        """Note that a step begins, or several that MindSpore runs together."""
        begun, last = self._done, int(run_context.original_args().cur_step_num)
        self._done = last
        self._windows.comes(begun - self._first, max(last - begun, 1), "dataset sink")

    def on_train_step_end(self, run_context: Any) -> None:
        """Count the step."""
        self._windows.passed()

    def on_train_end(self, run_context: Any) -> None:
        """End the capture with the training."""
        self._finish()

    def _finish(self) -> None:
        trainings.leave("mindspore", self)
        self._windows.finish()
