"""Hugging Face Transformers: a callback for its Trainer that counts steps and captures some of them.

    trainer = Trainer(..., callbacks=[OpscopeCallback("run.opscope", start=10, stop=20)])

A step is one optimizer step with all batches that it accumulates, as in the Trainer's own count.
Accelerate has no callbacks: the PyTorch adapter counts the steps of its optimizers.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .stepping import Counted


class OpscopeCallback(Counted, TrainerCallback):  # type: ignore[misc] # transformers is not typed here
    """Counts the steps of a training, and captures the steps [start, stop) into ``path`` if given.

    ``warmup``, ``repeat``, ``backend`` and ``force`` as in ``Stepping``.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to count steps."""
        self._steps.begin(kwargs.get("model"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a step."""
        self._steps.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the step."""
        self._steps.step_ends()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the capture with the training."""
        self._steps.end()
