"""What bounds the steps of a Profile, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import polars as pl

from opscope.core.advice import diagnosis_time
from opscope.core.advice.diagnosis import Facts, diagnosis
from opscope.core.advice.diagnosis_sums import NEEDED, Sums, sums
from opscope.core.advice.finding import Answers
from opscope.core.advice.saying import framework
from opscope.core.analysis.host import light_diagnosis
from opscope.core.analysis.ranks import stragglers
from opscope.core.tables.gathered import one_piece

from .base import selectable
from .host import Host
from .idle import Idle
from .light import Light
from .memory import Memory
from .steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Where


class Diagnosed(Steps, Memory, Idle, Host, Light):
    """What bounds the steps."""

    @selectable
    def diagnosis(self, **where: Unpack[Where]) -> pl.DataFrame:
        """What bounds the steps, in words, what costs most first; then what cannot be told.

        The first row is the answer: a cause such as ``input-bound``; ``healthy`` where nothing stands out; or
        ``cannot tell``, with what to capture. Steps that are warm-up are left out if there are others;
        without steps all that was recorded is judged. Light mode judges the steps by their phases.
        """
        return self._told("diagnosis")

    def _sums_for_diagnosis(self) -> Sums:
        return sums(self._passing_sums(NEEDED), self.device[0], not self.cpu_only)

    def _make_diagnosis(self) -> pl.DataFrame:
        if self.is_light:
            return light_diagnosis.diagnosis(self.trace)
        trace = self.attribution.trace
        work = None if self.cpu_only else self._device_work
        host = diagnosis_time.host_of(self._ops, self._waits, self.cpu_only)
        steps = diagnosis_time.steps_to_judge(self._found_steps, self.input_waits(), work, host)
        late = pl.DataFrame()
        if len(trace["processes"]) > 1:
            judged = one_piece(diagnosis_time.within(self._exchanged, steps))
            late = stragglers.stragglers(trace, judged)
        if work is None:
            divided = diagnosis_time.on_cpu(host, self._exchanged, steps)
        else:
            timed = work.timed and len(work.start) > 0
            divided = diagnosis_time.on_gpu(work, trace, host, steps) if timed else []
        return diagnosis(
            Facts(
                trace,
                divided,
                steps,
                host,
                work,
                self._sums_for_diagnosis,
                lambda: 0 if work is None else int(self._cached("unattributed")["time"].sum() or 0),
                self._waits,
                late,
                self.memory(),
                self.device,
                framework(cast(Answers, self)),
            )
        )
