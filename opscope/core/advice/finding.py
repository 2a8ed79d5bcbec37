"""What a detector is, and what it may answer: findings, nothing found, or that it cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import polars as pl

from opscope.core.tables.trace import Trace


class Answers(Protocol):
    """What a detector may look at: the trace, and frames as ``opscope.profile.Profile`` returns them."""

    @property
    def trace(self) -> Trace:
        """The tables that the profile was made of."""

    def memops(self, *, categories: bool = False) -> pl.DataFrame:
        """Every copy and set, with its op. ``categories``: Categorical text, which takes less memory."""

    def kernels(self, *, categories: bool = False) -> pl.DataFrame:
        """Every kernel, with its op."""

    def op_totals(self) -> pl.DataFrame:
        """Distinct ops by device time."""

    def summary(self) -> pl.DataFrame:
        """The whole profile in one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to change. Times in ns.

    The saving lies between ``saving_least`` and ``saving_most``; ``saving_most`` is None where nothing
    bounds it. ``reasoning`` says how both were computed, from columns that the profile has.
    """

    #: What the program does, in one sentence with its figures.
    what: str
    #: Where: ops, source lines, calls.
    evidence: str
    #: What to change, as code where the framework is known.
    recommendation: str
    #: The time that this is about.
    time: int
    saving_least: int
    saving_most: int | None
    reasoning: str
    #: ``high``, ``medium`` or ``low``: how likely the change saves anything.
    confidence: str


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The profile does not hold what the detector needs."""

    reason: str


#: An empty sequence says that the detector looked at everything it needs and found nothing.
Answer: TypeAlias = Sequence[Finding] | CannotTell


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One question about a profile. A module of ``advice/detectors`` defines one as ``DETECTOR``."""

    #: Its name, which is the module's.
    name: str
    #: The question that it answers, for the documentation.
    question: str
    find: Callable[[Answers], Answer]
