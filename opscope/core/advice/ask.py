"""Ask every detector, ours and those of other packages, and put their answers into one frame."""

from __future__ import annotations

import logging
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from inspect import signature
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import polars as pl

from opscope.core import progress
from opscope.core.advice import detectors as detector_package
from opscope.core.advice.commands import with_command
from opscope.core.advice.detectors import ON_HOST
from opscope.core.advice.finding import Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.saying import ms
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.not_merged import NotMerged
from opscope.core.perf.devices.vendors import vendor_of
from opscope.core.question.parameters import WrongParameter, parts, values_of
from opscope.core.registered import entry_points
from opscope.core.tables.impossible import durations_unknown
from opscope.core.tables.pool import Pool
from opscope.core.vendors import said as said_by_vendor

_log = logging.getLogger(__name__)
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
#: Entry points of other packages, each a ``Detector``.
GROUP: Final = "opscope.detectors"
#: How a finding points to another detector.
_POINTS: Final = re.compile(r" \((?:see )?(\w+)\)")
#: How many detectors are asked at a time, and how many findings are replayed at a time.
_AT_ONCE: Final = 2
#: Detectors that are asked first: one whose finding needs a replay, so that the replay's data are made while
#: the others run, and one that needs the ops of kernels but not their texts.
_FIRST: Final = ("slow_gemms", "communication_share", "tensor_shapes")
#: Detectors that are asked last: the memory for their search for iterations would add to the timeline's.
_LAST: Final = ("iteration_range", "no_iterations")
FOUND, NOTHING, CANNOT_TELL = "found", "nothing found", "cannot tell"
SCHEMA: Final[Mapping[str, type[pl.DataType]]] = MappingProxyType(
    {
        "number": pl.Int64,
        "detector": pl.String,
        "outcome": pl.String,
        "cause": pl.String,
        "finding": pl.String,
        "evidence": pl.String,
        "recommendation": pl.String,
        "time": pl.Int64,
        "saving": pl.Int64,
        "saving_share": pl.Float64,
        "step_saving": pl.Int64,
        "step_share": pl.Float64,
        "saving_least": pl.Int64,
        "saving_most": pl.Int64,
        "reasoning": pl.String,
        "confidence": pl.String,
        "reason": pl.String,
        "threshold": pl.String,
    }
)
#: Replays the timeline with edits, and returns the times of the window, then of each step, as
#: ``critical.scaled.SCHEMA`` has them; None where the trace has no timeline. Raises ValueError for an edit
#: that does not fit the trace.
Simulate: TypeAlias = Callable[[Sequence[Edit]], "pl.DataFrame | None"]


class UnknownDetector(WrongParameter):
    """No detector has this name; the message lists the existing ones."""


@dataclass(frozen=True, slots=True)
class Said:
    """A detector's answer: a finding, that it found nothing, or the reason why it cannot tell. In the ranked
    list, a cause that no detector explains is such an answer too, under the cause's name.

    ``times``: the result of replaying only the finding's edit, if it was replayed. ``threshold``: the least
    that a finding needs (``Detector.fires``).
    """

    detector: str
    outcome: str
    finding: Finding | None = None
    reason: str | None = None
    times: pl.DataFrame | None = None
    threshold: str | None = None
    #: The row of the diagnosis (``FINDINGS``) that the finding explains, and whether it counts against
    #: ``healthy``.
    cause: Mapping[str, Any] | None = None
    sure: bool = False
    #: What the change saves of a median step (ns), as a part of the step, and as a part of all wall time.
    step_saving: int | None = None
    step_share: float | None = None
    saving_share: float | None = None


def threshold(one: Detector) -> str | None:
    """Return in words what a finding of a detector needs at least, with the values used."""
    if not one.fires:
        return None
    given = signature(one.find).parameters
    values = {name: each.written(given[name].default) for name, each in one.thresholds.items()}
    return one.fires.format(**values)


class _Detectors(Mapping[str, Detector]):
    """Every detector by name; one of ours is loaded when it is first looked up."""

    def __init__(self) -> None:
        ours = (module.name for module in pkgutil.iter_modules(detector_package.__path__))
        self._records: dict[str, Detector | None] = dict.fromkeys(ours)
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
            try:
                detector = point.load()
                if not isinstance(detector, Detector) or detector.name in self._records:
                    raise TypeError(f"it is no Detector, or its name {point.name!r} is taken")
            except Exception as error:  # noqa: BLE001 - another package's fault must not cost the others
                _log.warning("opscope: the detector %s is left out: %s", point.name, error)
            else:
                self._records[detector.name] = detector

    def __getitem__(self, name: str) -> Detector:
        record = self._records[name]
        if record is None:
            module = f"{detector_package.__name__}.{name}"
            record = getattr(import_module(module), "DETECTOR", None)
            if not isinstance(record, Detector) or record.name != name:
                raise TypeError(f"{module} defines no DETECTOR named {name!r}")
            self._records[name] = record
        return record

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records


@cache
def detectors() -> Mapping[str, Detector]:
    """Every detector by name. Looking one up raises TypeError where a module of ours defines none."""
    return _Detectors()


def explains(name: str) -> Sequence[str]:
    """Return the causes of the diagnosis that the findings of a detector explain."""
    causes = detector_package.EXPLAINS.get(name)
    if causes is None:
        record = detectors().get(name)
        causes = () if record is None else record.explains
    return causes


def chosen(names: Iterable[str]) -> dict[str, Detector]:
    """Return the detectors of these names; a name may have thresholds, ``host_bound:least=2%``.

    Raises UnknownDetector, and WrongParameter for a threshold that the detector lacks or refuses.
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
    """Return the answers of ``said``, as a table of ``frame``."""
    return frame(answers, said(answers, simulate))


def said(
    answers: Answers,
    simulate: Simulate | None = None,
    names: Iterable[str] | None = None,
    prepare: Callable[[], object] | None = None,
    *,
    replays: Callable[[Said], bool] = lambda said: True,
    before: dict[str, tuple[Said, ...]] | None = None,
) -> tuple[Said, ...]:
    """Return what the detectors say (``names``: these alone), findings first, those that save most before.

    ``prepare`` makes what ``simulate`` needs; it is called once a finding has an edit, beside the detectors.
    A finding without an estimate gets the one that ``simulate`` makes of its edit, if ``replays`` is true for
    it. The order: findings with an estimate, the largest first; then those without one, by their upper bound,
    else by their time; then those whose estimate is 0; then detectors that cannot tell, and those that found
    nothing. ``before``: earlier answers of detectors, by name, to use and to add to; findings may then point
    to detectors that are not in ``names``. Raises UnknownDetector.
    """
    all_detectors = detectors()
    wanted = dict(all_detectors) if names is None else chosen(names)
    others = (name for name in all_detectors if name not in _LAST)
    in_turn = dict.fromkeys((*_FIRST, *others, *all_detectors))
    asked = [wanted[name] for name in in_turn if name in wanted and name in all_detectors]
    earlier = {} if before is None else before

    def needs_replay(said: Said) -> bool:
        return _has_edit(said) and replays(said)

    with progress.stage("asking detectors", len(asked)) as stage:
        parts = _by_two(asked, answers, stage, prepare, needs_replay, earlier)
        answers_said = [said for part in parts for said in part]
    if simulate is not None:
        with progress.stage("replaying the timeline", len(answers_said)) as stage:
            answers_said = _replay(answers_said, simulate, stage, needs_replay)
    if before is not None:
        before |= {
            each.name: tuple(said for said in answers_said if said.detector == each.name)
            for each in asked
        }
    fired = {said.detector for said in answers_said if said.outcome == FOUND}
    if before is not None:
        pointed = {name for said in answers_said for name in _pointers(said.finding)}
        for name in sorted(pointed - {each.name for each in asked}):
            if name in all_detectors:
                before.setdefault(name, tuple(_ask(all_detectors[name], answers)))
                fired |= {said.detector for said in before[name] if said.outcome == FOUND}
    answers_said = [_pointing(said, fired, answers.cpu_only) for said in answers_said]
    order = (FOUND, CANNOT_TELL, NOTHING)
    answers_said.sort(
        key=lambda said: (order.index(said.outcome), rank(said.finding), said.detector)
    )
    return tuple(answers_said)


#: The texts of a finding that may point to another detector.
_TEXTS: Final = ("what", "evidence", "recommendation", "reasoning")


def _pointers(finding: Finding | None) -> set[str]:
    """Return the names to which a finding's texts point."""
    texts = "" if finding is None else "\n".join(getattr(finding, name) for name in _TEXTS)
    return set(_POINTS.findall(texts))


def _pointing(one: Said, fired: Collection[str], on_cpu: bool) -> Said:
    """Return a detector's answer without ``(see NAME)`` for detectors that found nothing or were not asked.
    ``on_cpu``: without a GPU, the time that is judged is that of the ops."""

    def kept(name: re.Match[str]) -> str:
        return name[0] if name[1] in fired or name[1] not in detectors() else ""

    def ours(text: Any) -> Any:
        text = text and _POINTS.sub(kept, text)
        return text.replace("the device's time", "the ops' time") if text and on_cpu else text

    finding = one.finding
    if finding is not None:
        finding = replace(finding, **{name: ours(getattr(finding, name)) for name in _TEXTS})
    return replace(one, finding=finding, reason=ours(one.reason), threshold=ours(one.threshold))


def frame(answers: Answers, answers_said: Sequence[Said]) -> pl.DataFrame:
    """One row per finding, and one per detector that found nothing or cannot tell (SCHEMA; times in ns).

    Savings overlap: they must not be added up.
    """
    vendor, command = (
        vendor_of(answers.trace, answers.call_names),
        answers.trace.origin.get("command"),
    )
    rows = []
    for number, one in enumerate(answers_said, 1):
        row: dict[str, Any] = {"detector": one.detector, "outcome": one.outcome}
        row |= {"reason": one.reason, "threshold": one.threshold}
        if one.finding is not None:
            row |= {"number": number, **_columns(one.finding)}
            if one.threshold is not None:
                row["finding"] += f" (threshold: {one.threshold})"
            if one.cause is not None:
                row["cause"] = one.cause["finding"]
            names = ("saving_share", "step_saving", "step_share")
            row |= {name: getattr(one, name) for name in names}
            row["recommendation"] = with_command(row["recommendation"], command)
        rows.append({name: _in_words(value, vendor) for name, value in row.items()})
    filled = [{name: row.get(name) for name in SCHEMA} for row in rows]
    return pl.DataFrame(filled, schema=dict(SCHEMA), orient="row")


def _in_words(value: Any, vendor: str | None) -> Any:
    """Return a value of a row; a text is put into the words of the device's vendor."""
    return said_by_vendor(value, vendor) if isinstance(value, str) else value


def refused(detector: str) -> None:
    """Log that the edit of a detector does not fit the trace, with the error that is being handled."""
    _log.warning("opscope: the edit of the detector %s was not replayed", detector, exc_info=True)


def _by_two(
    asked: Sequence[Detector],
    answers: Answers,
    stage: progress.Stage,
    prepare: Callable[[], object] | None,
    replayed: Callable[[Said], bool],
    before: Mapping[str, tuple[Said, ...]],
) -> list[tuple[Said, ...]]:
    """Return what each detector says, in their order. The thread that meets the first edit to replay calls
    ``prepare``.

    NumPy and Polars release the GIL, and a profile computes each of its frames once, so two threads are of
    use.
    """
    first = Lock()

    def one(detector: Detector) -> tuple[Said, ...]:
        said = before.get(detector.name) or tuple(_ask(detector, answers))
        stage.add()
        needed = any(map(replayed, said))
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


def _has_edit(said: Said) -> bool:
    return said.finding is not None and said.finding.edit is not None


def _replay(
    answers_said: Sequence[Said],
    simulate: Simulate,
    stage: progress.Stage,
    replayed: Callable[[Said], bool],
) -> list[Said]:
    """Return the detectors' answers, with the estimates of the replays."""

    def one(said: Said) -> Said:
        estimated = _estimate(said, simulate) if replayed(said) else said
        stage.add()
        return estimated

    return _each(one, answers_said)


def _each(function: Callable[[_Asked], _Answer], of: Sequence[_Asked]) -> list[_Answer]:
    """Return the results of the function for each item, in order: two at a time, in the caller's context."""
    pool = Pool(_AT_ONCE)
    try:
        waited = [pool.submit(copy_context().run, function, each) for each in of]
        return [each.result() for each in waited]
    finally:
        pool.shutdown(cancel_futures=True)


def _ask(detector: Detector, answers: Answers) -> Iterator[Said]:
    try:
        why = None if detector.name in ON_HOST else durations_unknown(answers.trace)
        if detector.needs_all_kernels:
            why = answers.of(idle_unknown) or why
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
    """Give a finding without an estimate the estimate of the replay, within the finding's bounds."""
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


def rank(finding: Finding | None) -> tuple[int, int]:
    """Return a finding's place: known savings first, then possible savings, then none."""
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
