"""Asks every detector, ours and those of other packages, and puts what they answer into one frame."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from opscope.core.advice import detectors as detector_package
from opscope.core.advice.finding import Answers, CannotTell, Detector, Finding

_log = logging.getLogger(__name__)
#: Entry points of other packages, each a ``Detector``.
GROUP: Final = "opscope.detectors"
FOUND, NOTHING, CANNOT_TELL = "found", "nothing found", "cannot tell"
SCHEMA: Final[Mapping[str, type[pl.DataType]]] = MappingProxyType(
    {
        "detector": pl.String,
        "outcome": pl.String,
        "finding": pl.String,
        "evidence": pl.String,
        "recommendation": pl.String,
        "time": pl.Int64,
        "saving": pl.Int64,
        "saving_least": pl.Int64,
        "saving_most": pl.Int64,
        "reasoning": pl.String,
        "confidence": pl.String,
        "reason": pl.String,
    }
)


@cache
def detectors() -> Mapping[str, Detector]:
    """Every detector by name. Raises TypeError where a module of ours defines none."""
    found: dict[str, Detector] = {}
    for module in pkgutil.iter_modules(detector_package.__path__):
        place = f"{detector_package.__name__}.{module.name}"
        one = getattr(import_module(place), "DETECTOR", None)
        if not isinstance(one, Detector) or one.name != module.name:
            raise TypeError(f"{place} defines no DETECTOR named {module.name!r}")
        found[one.name] = one
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            one = point.load()
            if not isinstance(one, Detector) or one.name in found:
                raise TypeError(f"it is no Detector, or its name {point.name!r} is taken")
        except Exception as error:  # noqa: BLE001 - another package's fault must not cost the others
            _log.warning("opscope: the detector %s is left out: %s", point.name, error)
        else:
            found[one.name] = one
    return MappingProxyType(found)


def advice(answers: Answers) -> pl.DataFrame:
    """One row per finding, and one per detector that found nothing or cannot tell (SCHEMA; times ns).

    Findings come first, those that may save most before the others; then what no detector could tell, with
    the reason. Savings overlap: they must not be added up.
    """
    rows: list[dict[str, Any]] = []
    for one in detectors().values():
        rows += _rows(one, answers)
    order = (FOUND, CANNOT_TELL, NOTHING)
    rows.sort(key=lambda row: (order.index(row["outcome"]), -_most(row), row["detector"]))
    return pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")


def _most(row: Mapping[str, Any]) -> int:
    most = row.get("saving_most")
    return int(row.get("time") or 0) if most is None else int(most)


def _rows(one: Detector, answers: Answers) -> Iterable[dict[str, Any]]:
    try:
        answer = one.find(answers)
    except Exception as error:  # noqa: BLE001 - one detector's fault must not cost the others' answers
        _log.warning("opscope: the detector %s failed", one.name, exc_info=True)
        answer = CannotTell(f"the detector failed: {type(error).__name__}: {error}")
    nothing = dict.fromkeys(SCHEMA)
    if isinstance(answer, CannotTell):
        return [{**nothing, "detector": one.name, "outcome": CANNOT_TELL, "reason": answer.reason}]
    if not answer:
        return [{**nothing, "detector": one.name, "outcome": NOTHING}]
    return [
        {**nothing, "detector": one.name, "outcome": FOUND, **_columns(each)} for each in answer
    ]


def _columns(finding: Finding) -> dict[str, Any]:
    names = SCHEMA.keys() - {"detector", "outcome", "finding", "reason"}
    return {"finding": finding.what} | {name: getattr(finding, name) for name in names}
