"""Gates for CI: expressions such as ``data_loader`` and ``saving>5%``, and whether advice passes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opscope.core.question import units
from opscope.core.question.suggest import unknown

SAVING: Final = "saving"
_FORM: Final = re.compile(
    r"\s*([A-Za-z_][\w.-]*)\s*(?:(>=?)\s*([0-9]+(?:\.[0-9]+)?)\s*(%|ns|us|µs|ms|s)\s*)?", re.ASCII
)
_NS: Final[Mapping[str, float]] = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_SAID: Final = "such as data_loader, 'saving>5%' or 'data_loader>20ms'"
Row = Mapping[str, Any]


class BadGate(ValueError):
    """The expression is not a gate; the message shows valid ones."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a gate: ``fails`` is None where it cannot be judged; ``why`` says why it fails or
    cannot be judged."""

    fails: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """One ``--fail-on``: a detector, or ``saving``; and the largest saving that passes, if it has one."""

    text: str
    name: str
    orders: str | None = None
    amount: float = 0.0
    unit: str = ""

    @classmethod
    def of(cls, text: str, detectors: Iterable[str], asked: Sequence[str] | None = None) -> Gate:
        """Return the gate in ``text``. Raises BadGate. ``detectors``: all detectors; ``asked``: the detectors
        that the user named, if not all."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise BadGate(f"{text!r} is no gate, {_SAID}")
        name, orders, amount, unit = match.groups()
        name = name.lower().replace("-", "_")
        if name == SAVING and orders is None:
            raise BadGate(f"{text!r} says no amount, {_SAID}")
        names = list(detectors)
        if name != SAVING and name not in names:
            raise BadGate(unknown("detector", name, names))
        if asked is not None and name != SAVING and name not in asked:
            raise BadGate(f"{text!r}: --detectors does not ask {name}")
        return cls(text.strip(), name, orders, float(amount or 0), unit or "")

    def judge(self, rows: Sequence[Row], combined: Row) -> Verdict:
        """Return the verdict on the rows of ``advice()`` and the row of ``advice_combined()``."""
        mine = [row for row in rows if self.name in (SAVING, row["detector"])]
        findings = [row for row in mine if row["outcome"] == "found"]
        blind = [row for row in mine if row["outcome"] == "cannot tell"]
        if self.name != SAVING and blind:
            return Verdict(None, str(blind[0]["reason"]))
        if self.orders is None:
            summary = f"{len(findings)} findings" if len(findings) > 1 else "a finding"
            return Verdict(bool(findings), f"{self.name} has {summary}" if findings else "")
        if not findings:
            return Verdict(False)
        limit = self._limit(combined["wall_time"])
        if limit is None:
            return Verdict(None, "the window's wall time is not known")
        return self._of_savings(findings, combined, limit)

    def _of_savings(self, findings: Sequence[Row], combined: Row, limit: float) -> Verdict:
        savings = [(_known(row), f"{row['detector']} saves") for row in findings]
        if self.name == SAVING and combined["saving"] is not None:
            savings.insert(0, (combined["saving"], "all findings together save"))
        over = [
            (time, label) for time, label in savings if time is not None and self._over(time, limit)
        ]
        if over:
            time, what = max(over, key=lambda pair: pair[0])
            part = combined["wall_time"]
            share = (
                f", {units.share(time / part)} of the window's {units.time(part)}" if part else ""
            )
            return Verdict(True, f"{what} {units.time(time)}{share}")
        open_ = [row["detector"] for row in findings if self._open(row, limit)]
        if open_:
            return Verdict(None, f"{', '.join(dict.fromkeys(open_))}: the saving has no estimate")
        if self.name == SAVING and combined["saving"] is None and len(findings) > 1:
            most = sum(_most(row) for row in findings)
            if self._over(most, limit):
                return Verdict(
                    None, f"the saving of all together is not known: {combined['reason']}"
                )
        return Verdict(False)

    def _limit(self, wall: int | None) -> float | None:
        if self.unit == "%":
            return None if wall is None else wall * self.amount / 100
        return self.amount * _NS[self.unit]

    def _over(self, time: float, limit: float) -> bool:
        return time > limit or (self.orders == ">=" and time == limit)

    def _open(self, row: Row, limit: float) -> bool:
        """Whether it is unknown if a finding saves more than ``limit``."""
        if row["saving"] is not None:
            return False
        return row["saving_most"] is None or self._over(row["saving_most"], limit)


def _known(row: Row) -> int | None:
    """Return the estimated saving of a finding, or its lower bound."""
    time = row["saving"] if row["saving"] is not None else row["saving_least"]
    return None if time is None else int(time)


def _most(row: Row) -> int:
    return int(row["saving"] if row["saving"] is not None else row["saving_most"])


def lines(
    gates: Iterable[Gate], rows: Sequence[Row], combined: Row, strict: bool
) -> Iterator[tuple[bool, str]]:
    """Yield for each gate that fails or cannot be judged whether it fails, and a line with the reason."""
    failed = []
    for gate in gates:
        verdict = gate.judge(rows, combined)
        if verdict.fails:
            failed.append(f"--fail-on {gate.text}: {verdict.why}")
        elif verdict.fails is None and strict:
            failed.append(f"--fail-on {gate.text} (--strict): it cannot be judged: {verdict.why}")
        elif verdict.fails is None:
            yield False, f"--fail-on {gate.text}: it cannot be judged: {verdict.why}"
    if failed:
        yield True, "; ".join(failed)
