"""What a detector is, and its possible answers: findings, nothing found, or that it cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.critical.edits import Edit
from opscope.core.question.parameters import Parameter
from opscope.core.tables.intervals import Floats

__all__ = ["EVIDENCE", "Answer", "Answers", "CannotTell", "Detector", "Edit", "Finding", "Floats"]

#: The columns that the rows of a finding's evidence may have: as in ``kernels()`` and ``ops()``, with
#: ``count`` (their number), ``time`` (ns) and ``detail`` (other facts in words).
EVIDENCE: Final = {
    "op_id": pl.Int64,
    "op": pl.String,
    "kernel": pl.String,
    "direction": pl.String,
    "layer": pl.String,
    "source": pl.String,
    "inputs": pl.String,
    "dtypes": pl.String,
    "process": pl.Int32,
    "device": pl.Int32,
    "step": pl.Int64,
    "count": pl.Int64,
    "time": pl.Int64,
    "detail": pl.String,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to change. Times in ns.

    The saving lies between ``saving_least`` and ``saving_most``; ``saving_most`` is None if nothing bounds
    it. ``saving`` is the best estimate; None if the replay of ``edit`` gives it, or if it is not known.
    ``reasoning`` says how all were computed, from columns that the profile has.
    """

    #: What the program does, in one sentence with its figures.
    what: str
    #: Where: ops, source lines, calls.
    evidence: str
    #: What to change, as code where the framework is known.
    recommendation: str
    #: The time that the finding is about.
    time: int
    saving_least: int
    saving_most: int | None
    reasoning: str
    #: ``high``, ``medium`` or ``low``: how likely the change saves anything.
    confidence: str
    saving: int | None = None
    #: The evidence as rows, those with most time first: any of the columns of EVIDENCE.
    rows: pl.DataFrame | None = None
    #: The change's effect on the timeline; None where that is not known.
    edit: Edit | None = None
    #: ``step``: the time is lost in each step. ``run``: the time is lost once, as at the start, and no step
    #: is shorter without it.
    of: str = "step"
    #: What the change saves of a median step (ns); None: ``saving`` is divided by the steps.
    step_saving: int | None = None
    #: Whether this finding makes a run unhealthy even if the change's saving is not known.
    stands_out: bool = False
    #: Whether the finding puts all other figures in doubt: then the first row of the diagnosis says so too.
    doubts: bool = False


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
    find: Callable[..., Answer]
    #: Whether it compares numbers or times of kernels, so that it cannot judge where kernels are missing.
    needs_all_kernels: bool = False
    #: The thresholds that a user may set (``--detectors host_bound:least=2%``): keywords of ``find``.
    thresholds: Mapping[str, Parameter] = field(default_factory=dict)
    #: What a finding needs at least, in words, with ``{least}`` for the value of the threshold ``least``.
    fires: str = ""
    #: Its data, and the cases in which it cannot tell: a sentence each, for the documentation.
    looks_at: str = ""
    abstains: str = ""
    #: The causes of the diagnosis whose time its findings explain, such as ``input-bound``: in the ranked
    #: list, cause and finding are one row.
    explains: Sequence[str] = ()
    #: The names of other tools' rules that ask the same, such as ``DLProf: Bad Tensor Shape``.
    known_as: Sequence[str] = ()
