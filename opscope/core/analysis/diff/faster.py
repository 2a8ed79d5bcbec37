"""Whether one run's steps are faster than another's by a factor, beyond the noise of both."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from opscope.core.analysis.diff.judged import samples, typical_of
from opscope.core.analysis.diff.noise import Typical, noise
from opscope.core.analysis.diff.reduced import RUN, Reduced
from opscope.core.analysis.diff.tables import ONE_STEP, lengths
from opscope.core.question import units


@dataclass(frozen=True, slots=True)
class Faster:
    """How many times as fast a run is as its reference (by mean steps), whether this reaches the factor
    ``by``, and why.

    ``proven``: None if the noise is unknown.
    """

    ratio: float | None
    proven: bool | None
    said: str

    def __bool__(self) -> bool:
        return bool(self.proven)

    def __repr__(self) -> str:
        return f"<{self.said}>"


def faster(reference: Reduced, run: Reduced, by: float) -> Faster:
    """Return whether a step of ``run`` takes less than 1 / ``by`` of a step of ``reference``, beyond the
    noise.

    This is Yuen's test (``noise``) of the reference's steps against the run's step times multiplied by
    ``by``.
    """
    for side in (reference, run):
        if side.reason is not None:
            return Faster(None, None, side.reason)
        if side.unit == RUN or samples(side) < 2:
            return Faster(None, None, ONE_STEP.format(unit=side.unit))
    group = pl.lit(0, pl.Int64).alias("group")
    a, b = (typical_of(side, lengths(side).with_columns(group), 1) for side in (reference, run))
    scaled = replace(
        b, middle=b.middle * by, variance=None if b.variance is None else b.variance * by**2
    )
    limit = noise(a, scaled)
    means = [side.mean for side in (reference, run)]
    ratio = means[0] / means[1] if means[1] else None
    if limit is None or ratio is None:
        return Faster(ratio, None, ONE_STEP.format(unit=run.unit))
    proven = bool(a.middle[0] - scaled.middle[0] > limit[0]) and ratio > by
    return Faster(ratio, proven, _said(means, ratio, by, float(limit[0]), (a, b), proven))


def _said(
    means: list[float],
    ratio: float,
    by: float,
    limit: float,
    sides: tuple[Typical, Typical],
    proven: bool,
) -> str:
    noise_of = units.time(round(limit))
    typical = " and ".join(units.time(round(float(side.middle[0]))) for side in sides)
    times = (
        f"{units.time(round(means[0]))} a step in the reference, {units.time(round(means[1]))} here"
    )
    times += f"; judged are {typical}, without the fastest and slowest fifth"
    verdict = "beyond" if proven else "not beyond"
    steps = f"{sides[0].steps} and {sides[1].steps} steps"
    return (
        f"{ratio:.3g} times as fast ({times}), {verdict} {by:g} times by more than the noise of"
        f" {noise_of}, {steps}"
    )
