"""Keras: capture a range of training steps into a profile.

model.fit(x, y, callbacks=[opscope.callbacks.keras.StepRange(10, 15, "run.opscope")])
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras.callbacks import Callback

from opscope.core.capture.session import Capture
from opscope.core.capture.steps_per_execution import Executions

from . import observe, profile
from .steprange import StepRange as _Range

_log = logging.getLogger(__name__)


class StepRange(Callback):  # type: ignore[misc] # keras is not typed here
    """Training steps [start, stop) of ``fit``, counted over all its epochs, into ``path``.

    With ``repeat`` the k-th window's profile has ``-k`` in its name (from the second on). ``make``
    gives another capture than the profile. With ``steps_per_execution`` Keras calls back only
    between executions: the window then begins and ends at the first execution that reaches it,
    which is logged. Frameworks imported are observed from here on (``opscope.init()``). Raises
    ValueError on a window that is empty.
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
        self._step = 0
        self._executions = Executions()
        self._told = False
        observe()

    @property
    def state(self) -> Any:
        """Where the range stands: ``opscope.callbacks.steprange.State``."""
        return self._range.state

    def _profile(self, window: int) -> Capture:
        path = self._path
        if window:
            path = path.with_name(f"{path.stem}-{window}{path.suffix}")
        return profile(path, self._backend, self._force)

    def on_train_begin(self, logs: Any = None) -> None:
        """Steps are counted from here."""
        self._step = 0
        self._range.at(0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step, or several at once, are next."""
        self._executions.begins(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """They are over; ``batch`` was the last, or in older Keras the first."""
        per_execution = getattr(self.model, "steps_per_execution", None)
        many = self._executions.ends(batch, per_execution, (self.params or {}).get("steps"))
        self._step += many
        if many > 1 and not self._told:
            self._told = True
            _log.warning(
                "Keras runs %d steps at a time (steps_per_execution): the captured range begins and "
                "ends between executions",
                many,
            )
        self._range.at(self._step)

    def on_train_end(self, logs: Any = None) -> None:
        """Training is over, and so is the capture."""
        self._range.finish()
