"""A Keras callback that captures a range of training steps into a profile.

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
    """Captures training steps [start, stop) of ``fit``, counted over all its epochs, into ``path``.

    With ``repeat``, the name of window k's profile ends in ``-k`` (k counts from 0; window 0 has no suffix).
    ``make`` makes another capture instead of the profile. With ``steps_per_execution`` Keras calls back
    only between executions: the window then begins and ends at the first execution that reaches it, and a
    warning is logged. Making the callback observes the imported frameworks (``opscope.init()``). Raises
    ValueError for an empty window.
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
        self._warned = False
        observe()

    @property
    def state(self) -> Any:
        """The state of the range: an ``opscope.callbacks.steprange.State``."""
        return self._range.state

    def _profile(self, window: int) -> Capture:
        path = self._path
        if window:
            path = path.with_name(f"{path.stem}-{window}{path.suffix}")
        return profile(path, self._backend, self._force)

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to count steps."""
        self._step = 0
        self._range.at(0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Note that an execution of one or more steps begins with ``batch``."""
        self._executions.begins(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps of the execution; ``batch`` is its last batch, or before Keras 3.11 its first."""
        per_execution = getattr(self.model, "steps_per_execution", None)
        many = self._executions.ends(batch, per_execution, (self.params or {}).get("steps"))
        self._step += many
        if many > 1 and not self._warned:
            self._warned = True
            _log.warning(
                "Keras runs %d steps per execution (steps_per_execution): the captured range begins and "
                "ends between executions",
                many,
            )
        self._range.at(self._step)

    def on_train_end(self, logs: Any = None) -> None:
        """End the capture with the training."""
        self._range.finish()
