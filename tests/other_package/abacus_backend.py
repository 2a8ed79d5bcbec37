"""A backend as another package would have it: the recorder, and a file with what an abacus did."""

from __future__ import annotations

from pathlib import Path

from opscope.backends.base import Auto, Availability, Backend
from opscope.backends.machine import Machine
from opscope.backends.recorder import RecorderCapture
from opscope.backends.window import Bounds
from opscope.core.capture import session


class AbacusCapture(RecorderCapture):
    def start(self) -> None:
        super().start()
        session.recorder().note("info", "an abacus counts along")


class AbacusBackend(Backend):
    name = "abacus"
    gives = "beads"
    rank = 10

    def available(self, machine: Machine) -> Availability:
        if machine.environ.get("ABACUS") is None:
            return Availability(False, "no abacus is on the table", "set ABACUS to where it is")
        return Availability(True, "an abacus is on the table", auto=Auto.NOW)

    def capture(self, folder: Path, bounds: Bounds) -> AbacusCapture:
        return AbacusCapture(folder)


ABACUS = AbacusBackend()
