"""A step range whose captures may fail: the failure is logged, and the training goes on without them."""

from __future__ import annotations

import logging

from .steprange import State, StepRange

_log = logging.getLogger(__name__)


class Guarded:
    """Feeds ``steps`` for a training loop. After the first exception it captures nothing until ``begin``."""

    def __init__(self, steps: StepRange) -> None:
        self.steps = steps
        self.broken = False

    @property
    def state(self) -> State:
        """The state of the range."""
        return self.steps.state

    def begin(self) -> None:
        """A training begins: an exception in an earlier one does not count."""
        self.broken = False

    def at(self, number: int, count: int = 1) -> None:
        """Step ``number`` is next, or ``count`` that run together from it on."""
        if self.broken:
            return
        try:
            self.steps.at(number, count)
        except Exception:  # noqa: BLE001 - a capture that fails must not stop the training
            self._fail()

    def finish(self) -> None:
        """The training is over. A second call does nothing."""
        try:
            self.steps.finish()
        except Exception:  # noqa: BLE001 - the same
            self._fail()

    def _fail(self) -> None:
        self.broken = True
        _log.exception("opscope: the steps of a training are not captured further")
