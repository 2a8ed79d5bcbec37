"""What light mode measured of a Profile: steps by phase, and whole steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from opscope.core.analysis.host import energy, input_waits, light

from .base import Base, selectable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Light(Base):
    """Light mode: all steps of a training, without ops. Its frames are empty where that was off."""

    @property
    def is_light(self) -> bool:
        """Whether light mode recorded a process."""
        return light.is_light(self.trace)

    @selectable
    def light(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The time of all steps of a training, by phase; the phases exclude each other and add up exactly.

        Quantiles are right within 1 %. Steps that were recorded in full besides are not in it.
        """
        return self._given("light", lambda: light.totals(self.trace))

    @selectable
    def light_steps(self, **where: Unpack[Where]) -> pl.DataFrame:
        """Whole steps of a training: the slowest first; of the others the first, the last and some."""
        return self._given("light_steps", lambda: light.kept_steps(self.trace))

    @selectable
    def light_cost(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What light mode itself took of a step, how well it knows that, and the spells that it recorded."""
        return self._given("light_cost", lambda: light.cost(self.trace))

    @selectable
    def energy(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The energy that each GPU took while it was sampled, and that of a step."""
        return self._given("energy", lambda: energy.energy(self.trace, self._all_steps()))

    def _all_steps(self) -> pl.DataFrame:
        recorded = input_waits.ended(self.attribution.trace, self.attribution.meaning)
        steps = recorded.select("process", "start", "end", weight=pl.lit(1, pl.Int64))
        return pl.concat([energy.light_steps(self.trace), steps])
