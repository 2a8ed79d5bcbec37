"""Lightning: a callback that tells the steps and captures some, a profiler, and the automatic way.

    trainer = lightning.Trainer(callbacks=[OpscopeCallback("run.opscope", start=10, stop=20)])

With opscope's adapters installed (``opscope.init()``, ``opscope run``) the steps are told without a
change to the program: Lightning asks its entry-point group ``callbacks_factory``.
"""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.profilers import Profiler
except ImportError:  # the same code under its older name
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.profilers import Profiler

from opscope.core.capture import session

from .stepping import Stepping


class OpscopeCallback(Callback):  # type: ignore[misc] # lightning is not typed here
    """A step a training batch; the steps [start, stop) captured into ``path`` where one is given.

    ``warmup``, ``repeat``, ``backend`` and ``force`` as in ``Stepping``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        start: int = 1,
        stop: int | None = 4,
        **options: Any,
    ) -> None:
        super().__init__()
        self._steps = Stepping(path, start, stop, **options)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Training begins."""
        self._steps.begin(pl_module)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """A step begins."""
        self._steps.step_begins()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The step ends."""
        self._steps.step_ends()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Training is over."""
        self._steps.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training failed: what was captured is kept."""
        self._steps.end()


class OpscopeProfiler(Profiler):  # type: ignore[misc] # lightning is not typed here
    """Lightning's own actions as ranges in the domain ``opscope.lightning``.

    ``Trainer(profiler=OpscopeProfiler())``; beside a capture or under an NVTX tool.
    """

    def __init__(self) -> None:
        super().__init__(dirpath=None, filename=None)
        self._emitter = session.emitter("lightning")
        self._open: list[str] = []

    def start(self, action_name: str) -> None:
        """An action begins."""
        self._open.append(action_name)
        emitter = self._emitter
        if emitter.active:
            emitter.push(emitter.prepare(action_name))

    def stop(self, action_name: str) -> None:
        """It ends; what was left open in it ends too."""
        if action_name not in self._open:
            return
        while True:
            last = self._open.pop()
            if self._emitter.active:
                self._emitter.pop()
            if last == action_name:
                return

    def summary(self) -> str:
        """Nothing here: the reports are made from the profile."""
        return ""


def callbacks() -> list[Any]:
    """What Lightning adds to each trainer: a callback that tells the steps, where we observe."""
    return [_Automatic()] if session.observed() else []


class _Automatic(OpscopeCallback):
    """Gives way to a callback that the user has put there."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        ours = [one for one in trainer.callbacks if isinstance(one, OpscopeCallback)]
        # one alone tells the steps: a user's, else the first of those that came by themselves
        users = any(not isinstance(one, _Automatic) for one in ours)
        self._idle = users or ours[0] is not self
        if not self._idle:
            super().on_train_start(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self._idle:
            super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
