"""Lightning: a callback that counts steps and captures some of them, and a profiler that emits ranges.

    trainer = lightning.Trainer(callbacks=[OpscopeCallback("run.opscope", start=10, stop=20)])

While opscope's adapters are installed (``opscope.init()``, ``opscope run``), steps are counted without a
change to the program: Lightning adds the callback through its entry-point group ``callbacks_factory``.
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.profilers import Profiler
except ImportError:  # the same package under its older name
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.profilers import Profiler

from opscope.core.capture import session

from .stepping import Counted


class OpscopeCallback(Counted, Callback):  # type: ignore[misc] # lightning is not typed here
    """Counts each training batch as a step, and captures the steps [start, stop) into ``path`` if given.

    ``warmup``, ``repeat``, ``backend`` and ``force`` as in ``Stepping``.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to count steps."""
        self._steps.begin(pl_module)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Begin a step."""
        self._steps.step_begins()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End the step."""
        self._steps.step_ends()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Events from here on belong to no step, until the next one begins."""
        self._steps.pauses()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the capture with the training."""
        self._steps.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the capture after an error in the training; its profile is written."""
        self._steps.end()


class OpscopeProfiler(Profiler):  # type: ignore[misc] # lightning is not typed here
    """Emits Lightning's own actions as ranges in the domain ``opscope.lightning``.

    ``Trainer(profiler=OpscopeProfiler())``; use it with a capture or under an NVTX tool.
    """

    def __init__(self) -> None:
        super().__init__(dirpath=None, filename=None)
        self._emitter = session.emitter("lightning")
        self._open: list[str] = []

    def start(self, action_name: str) -> None:
        """Open the range of an action."""
        self._open.append(action_name)
        emitter = self._emitter
        if emitter.active:
            emitter.push(emitter.prepare(action_name))

    def stop(self, action_name: str) -> None:
        """Close the range of an action, and all ranges still open inside it."""
        if action_name not in self._open:
            return
        while True:
            last = self._open.pop()
            if self._emitter.active:
                self._emitter.pop()
            if last == action_name:
                return

    def summary(self) -> str:
        """Return "": reports are made from the profile."""
        return ""


def callbacks() -> list[Any]:
    """Return the callbacks that Lightning adds to each trainer: a step counter if opscope observes."""
    return [_Automatic()] if session.observed() else []


class _Automatic(OpscopeCallback):
    """The callback that Lightning adds by itself; idle if the user has added an OpscopeCallback."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        ours = [callback for callback in trainer.callbacks if isinstance(callback, OpscopeCallback)]
        # only one callback counts steps: the user's, else the first of those that Lightning added
        users = any(not isinstance(our, _Automatic) for our in ours)
        self._idle = users or ours[0] is not self
        if not self._idle:
            super().on_train_start(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self._idle:
            super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
