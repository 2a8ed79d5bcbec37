"""Hugging Face Transformers: a callback for its Trainer that tells the steps and captures some.

    trainer = Trainer(..., callbacks=[OpscopeCallback("run.opscope", start=10, stop=20)])

A step is one of the optimizer, with all the batches it accumulates, as in the Trainer's own count.
Accelerate has no callbacks: its optimizers tell their steps to the PyTorch adapter by themselves.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from .stepping import Stepping


class OpscopeCallback(TrainerCallback):  # type: ignore[misc] # transformers is not typed here
    """The steps [start, stop) of a training are captured into ``path``, where one is given.

    ``warmup``, ``repeat``, ``backend`` and ``force`` as in ``Stepping``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        start: int = 1,
        stop: int | None = 4,
        **options: Any,
    ) -> None:
        self._steps = Stepping(path, start, stop, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training begins."""
        self._steps.begin(kwargs.get("model"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins."""
        self._steps.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The step ends."""
        self._steps.step_ends()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training is over."""
        self._steps.end()
