"""Asks every detector, ours and those of other packages, and puts what they answer into one frame."""

from __future__ import annotations

import logging
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import polars as pl

from opscope.core import progress
from opscope.core.advice import detectors as detector_package
from opscope.core.advice.finding import Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.saying import ms
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.not_merged import NotMerged
from opscope.core.perf.devices.vendors import vendor_of
from opscope.core.question.parameters import WrongParameter, parts, values_of
from opscope.core.tables.pool import Pool
from opscope.core.vendors import said as said_by_vendor

_log = logging.getLogger(__name__)
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
#: Entry points of other packages, each a ``Detector``.
GROUP: Final = "opscope.detectors"
#: How a finding points to another detector.
_POINTS: Final = re.compile(r" \((?:see )?(\w+)\)")
#: Detectors that are asked at a time, and findings that are replayed at a time.
_AT_ONCE: Final = 2
#: Detectors that are asked first: one whose finding needs a replay, so that what replays need is made beside
#: the others, and one that needs no texts of kernels but the ops that launched them.
_FIRST: Final = ("slow_gemms", "communication_share", "tensor_shapes")
#: Detectors that are asked last: the search for iterations would need its memory when the timeline is made.
_LAST: Final = ("iteration_range", "no_iterations")
FOUND, NOTHING, CANNOT_TELL = "found", "nothing found", "cannot tell"
SCHEMA: Final[Mapping[str, type[pl.DataType]]] = MappingProxyType(
    {
        "number": pl.Int64,
        "detector": pl.String,
        "outcome": pl.String,
        "finding": pl.String,
        "evidence": pl.String,
        "recommendation": pl.String,
        "time": pl.Int64,
        "saving": pl.Int64,
        "saving_share": pl.Float64,
        "saving_least": pl.Int64,
        "saving_most": pl.Int64,
        "reasoning": pl.String,
        "confidence": pl.String,
        "reason": pl.String,
        "threshold": pl.String,
    }
)
#: Replays the timeline with edits: the window's times, then each step's, as
#: ``critical.scaled.SCHEMA`` has them; None where the trace has no timeline. Raises ValueError for an edit
#: that does not fit the trace.
Simulate: TypeAlias = Callable[[Sequence[Edit]], "pl.DataFrame | None"]


class UnknownDetector(WrongParameter):
    """No detector has this name; the message lists those that there are."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a detector said: one finding of it, that it found nothing, or the reason why it cannot tell.

    ``times``: what the replay of the finding's edit alone gave, where one was made. ``threshold``: what a
    finding needs at least (``Detector.fires``).
    """

    detector: str
    outcome: str
    finding: Finding | None = None
    reason: str | None = None
    times: pl.DataFrame | None = None
    threshold: str | None = None


def threshold(one: Detector) -> str | None:
    """Return what a finding of a detector needs at least, in words, with the values that it is asked with."""
    if not one.fires:
        return None
    given = signature(one.find).parameters
    values = {name: each.written(given[name].default) for name, each in one.thresholds.items()}
    return one.fires.format(**values)


@cache
def detectors() -> Mapping[str, Detector]:
    """Every detector by name. Raises TypeError where a module of ours defines none."""
    detectors_by_name: dict[str, Detector] = {}
    for module in pkgutil.iter_modules(detector_package.__path__):
        module_name = f"{detector_package.__name__}.{module.name}"
        detector = getattr(import_module(module_name), "DETECTOR", None)
        if not isinstance(detector, Detector) or detector.name != module.name:
            raise TypeError(f"{module_name} defines no DETECTOR named {module.name!r}")
        detectors_by_name[detector.name] = detector
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            detector = point.load()
            if not isinstance(detector, Detector) or detector.name in detectors_by_name:
                raise TypeError(f"it is no Detector, or its name {point.name!r} is taken")
        except Exception as error:  # noqa: BLE001 - another package's fault must not cost the others
            _log.warning("opscope: the detector %s is left out: %s", point.name, error)
        else:
            detectors_by_name[detector.name] = detector
    return MappingProxyType(detectors_by_name)


def chosen(names: Iterable[str]) -> dict[str, Detector]:
    """Return the detectors of these names; a name may have thresholds, ``host_bound:least=2%``.

    Raises UnknownDetector, and WrongParameter for a threshold that the detector has not, or refuses.
    """
    all_detectors, wanted = detectors(), {}
    for text in names:
        name, given = parts(text)
        if name not in all_detectors:
            raise UnknownDetector(
                f"no detector named {name!r}; choose from: {', '.join(all_detectors)}"
            )
        detector = all_detectors[name]
        values = values_of(name, detector.thresholds, given)
        wanted[name] = (
            replace(detector, find=partial(detector.find, **values)) if values else detector
        )
    return wanted


def advice(answers: Answers, simulate: Simulate | None = None) -> pl.DataFrame:
    """What ``said`` has, as ``frame`` puts it."""
    return frame(answers, said(answers, simulate))


def said(
    answers: Answers,
    simulate: Simulate | None = None,
    names: Iterable[str] | None = None,
    prepare: Callable[[], object] | None = None,
) -> tuple[Said, ...]:
    """Return what the detectors say (``names``: these alone), findings first, those that save most before.

    ``prepare`` makes what ``simulate`` needs; it is called once a finding has an edit, beside the detectors.
    A finding without an estimate gets the one that ``simulate`` makes of its edit. First are the findings
    with an estimate, in its order; then those without, in the order of their upper bound, else of their time;
    then those whose estimate is nothing; then what no detector could tell, and what found nothing. Raises
    UnknownDetector.
    """
    all_detectors = detectors()
    wanted = dict(all_detectors) if names is None else chosen(names)
    others = (name for name in all_detectors if name not in _LAST)
    in_turn = dict.fromkeys((*_FIRST, *others, *all_detectors))
    asked = [wanted[name] for name in in_turn if name in wanted and name in all_detectors]
    with progress.stage("asking detectors", len(asked)) as stage:
        answers_said = [said for part in _by_two(asked, answers, stage, prepare) for said in part]
    if simulate is not None:
        with progress.stage("replaying the timeline", len(answers_said)) as stage:
            answers_said = _replay(answers_said, simulate, stage)
    answers_said = [_pointing(said, answers_said) for said in answers_said]
    order = (FOUND, CANNOT_TELL, NOTHING)
    answers_said.sort(
        key=lambda said: (order.index(said.outcome), _rank(said.finding), said.detector)
    )
    return tuple(answers_said)


def _pointing(one: Said, others: Sequence[Said]) -> Said:
    """Return what a detector said without ``(see NAME)`` of one that found nothing or was not asked."""
    finding = one.finding
    if finding is None:
        return one
    told = {each.detector for each in others if each.outcome == FOUND}

    def kept(name: re.Match[str]) -> str:
        return name[0] if name[1] in told or name[1] not in detectors() else ""

    shown = replace(
        finding,
        what=_POINTS.sub(kept, finding.what),
        evidence=_POINTS.sub(kept, finding.evidence),
        recommendation=_POINTS.sub(kept, finding.recommendation),
        reasoning=_POINTS.sub(kept, finding.reasoning),
    )
    return replace(one, finding=shown)


def frame(answers: Answers, answers_said: Sequence[Said]) -> pl.DataFrame:
    """One row per finding, and one per detector that found nothing or cannot tell (SCHEMA; times ns).

    Savings overlap: they must not be added up.
    """
    wall_time = None
    if any(said.finding is not None for said in answers_said):
        wall_time = answers.summary()["wall_time"][0]
    vendor = vendor_of(answers.trace, answers.call_names)
    rows = []
    for number, one in enumerate(answers_said, 1):
        row: dict[str, Any] = {"detector": one.detector, "outcome": one.outcome}
        row |= {"reason": one.reason, "threshold": one.threshold}
        if one.finding is not None:
            row |= {"number": number, **_columns(one.finding)}
            if one.threshold is not None:
                row["finding"] += f" (threshold: {one.threshold})"
            if wall_time and row["saving"] is not None:
                row["saving_share"] = row["saving"] / wall_time
        rows.append({name: _in_words(value, vendor) for name, value in row.items()})
    filled = [{name: row.get(name) for name in SCHEMA} for row in rows]
    return pl.DataFrame(filled, schema=dict(SCHEMA), orient="row")


def _in_words(value: Any, vendor: str | None) -> Any:
    """Return a value of a row; of a text what it is in the words of the device's vendor."""
    return said_by_vendor(value, vendor) if isinstance(value, str) else value


def refused(detector: str) -> None:
    """Log that the edit of a detector does not fit the trace, with the error that is being handled."""
    _log.warning("opscope: the edit of the detector %s was not replayed", detector, exc_info=True)


def _by_two(
    asked: Sequence[Detector],
    answers: Answers,
    stage: progress.Stage,
    prepare: Callable[[], object] | None,
) -> list[tuple[Said, ...]]:
    """Return what each detector says, in their order. Who meets the first edit calls ``prepare``.

    NumPy and Polars release the GIL, and a profile computes each of its frames once, so two are at work.
    """
    first = Lock()

    def one(detector: Detector) -> tuple[Said, ...]:
        said = tuple(_ask(detector, answers))
        stage.add()
        needed = any(each.finding and each.finding.edit for each in said)
        # never released: one thread makes it, and none waits for it
        if needed and prepare is not None and first.acquire(blocking=False):
            _prepare(prepare)
        return said

    return _each(one, asked)


def _prepare(prepare: Callable[[], object]) -> None:
    try:
        prepare()
    except Exception:  # noqa: BLE001 - the replay meets the error again, and its detector is named then
        _log.debug("opscope: the replay of the timeline could not be prepared", exc_info=True)


def _replay(answers_said: Sequence[Said], simulate: Simulate, stage: progress.Stage) -> list[Said]:
    """Return what the detectors said, with the estimates of the replays."""

    def one(said: Said) -> Said:
        estimated = _estimate(said, simulate)
        stage.add()
        return estimated

    return _each(one, answers_said)


def _each(function: Callable[[_Asked], _Answer], of: Sequence[_Asked]) -> list[_Answer]:
    """Return what the function makes of each, in order: two at a time, in the context of the caller."""
    pool = Pool(_AT_ONCE)
    try:
        waited = [pool.submit(copy_context().run, function, each) for each in of]
        return [each.result() for each in waited]
    finally:
        pool.shutdown(cancel_futures=True)


def _ask(detector: Detector, answers: Answers) -> Iterator[Said]:
    try:
        why = answers.of(idle_unknown) if detector.needs_all_kernels else None
        answer = detector.find(answers) if why is None else CannotTell(why)
        if not isinstance(answer, CannotTell):
            for each in answer:
                if not isinstance(each, Finding):
                    raise TypeError(f"{each!r} is no Finding")
    except NotMerged as error:
        answer = CannotTell(str(error))
    except Exception as error:  # noqa: BLE001 - one detector's fault must not cost the others' answers
        _log.warning("opscope: the detector %s failed", detector.name, exc_info=True)
        answer = CannotTell(f"the detector failed: {type(error).__name__}: {error}")
    if isinstance(answer, CannotTell):
        yield Said(detector.name, CANNOT_TELL, reason=answer.reason)
    elif not answer:
        yield Said(detector.name, NOTHING, threshold=threshold(detector))
    else:
        yield from (
            Said(detector.name, FOUND, each, threshold=threshold(detector)) for each in answer
        )


def _estimate(said: Said, simulate: Simulate) -> Said:
    """Give a finding without an estimate that of the replay, within its bounds."""
    finding = said.finding
    if finding is None or finding.saving is not None or finding.edit is None:
        return said
    try:
        times = simulate([finding.edit])
    except Exception:  # noqa: BLE001 - one detector's edit must not cost the others' answers
        refused(said.detector)
        return replace(said, finding=replace(finding, edit=None))
    if times is None or times.is_empty():
        return said
    alone = int(times["saving"][0])
    most = alone if finding.saving_most is None else finding.saving_most
    saving = max(min(alone, most), finding.saving_least)
    how = f"The estimate is the replay of the timeline with this change: it ends {ms(alone)} sooner"
    if saving != alone:
        how += f", which the bounds make {ms(saving)}"
    if alone <= 0:
        how = "The replay of the timeline with this change ends no sooner: other work hides what it saves"
    reasoning = f"{finding.reasoning} {how}.".strip()
    return replace(said, finding=replace(finding, saving=saving, reasoning=reasoning), times=times)


def _rank(finding: Finding | None) -> tuple[int, int]:
    """Return a finding's place: known savings first, then what may save, then what does not."""
    if finding is None:
        return 0, 0
    if finding.saving is not None:
        return (0, -finding.saving) if finding.saving > 0 else (2, 0)
    bound = finding.time if finding.saving_most is None else finding.saving_most
    return 1, -(bound or 0)


def _columns(finding: Finding) -> dict[str, Any]:
    texts = ("evidence", "recommendation", "reasoning", "confidence")
    times = ("time", "saving", "saving_least", "saving_most")
    row: dict[str, Any] = {"finding": finding.what}
    row |= {name: getattr(finding, name) for name in texts}
    for name in times:
        value = getattr(finding, name)
        row[name] = None if value is None else int(value)
    return row
