"""``step>3%``: a limit on how much slower the second run may be, and the check whether a difference
exceeds it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from opscope.core.analysis.diff.judged import NEW, SLOWER
from opscope.core.analysis.diff.tables import Difference

_FORM: Final = re.compile(
    r"\s*(?P<what>step|op:(?P<op>.+)|part:(?P<part>.+?))\s*>\s*"
    r"(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>%|ns|us|µs|μs|ms|s)\s*"
)
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
EXPECTED: Final = (
    "is not a limit such as step>3%, step>2ms, op:aten::mm>5% or 'part:data loader>1ms'"
)


NO_NOISE: Final = "too few steps, or whole runs: compare several steps of each"


class BadLimit(ValueError):
    """A limit cannot be parsed, or names something that neither run has; the message says which."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on the ``step``, an ``op`` (``*`` in its name matches any text) or a ``part`` of the step.

    ``percent`` of the first run, or ``time`` (ns); one of them is None.
    """

    text: str
    op: str | None
    part: str | None
    percent: float | None
    time: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """The result for a limit: whether it was exceeded, the change (ns; None: not known), and one sentence.

    ``judged``: whether this can be decided; if a change may be chance, or the data are incomplete, it is
    undecided. ``noisy``: the limit is kept, but the size of the noise is unknown.
    """

    limit: str
    failed: bool
    change: int | None
    said: str
    judged: bool = True
    noisy: bool = False


def parse(text: str) -> Limit:
    """Return the limit that ``text`` states. Raises BadLimit."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadLimit(f"{text!r} {EXPECTED}")
    value, unit = match["value"], match["unit"]
    percent = float(value) if unit == "%" else None
    time = None if unit == "%" else round(float(value) * _UNITS[unit])
    return Limit(text.strip(), match["op"], match["part"], percent, time)


def held(limit: Limit, difference: Difference) -> Held:
    """Return whether the mean changed by more than the limit and by more than the noise.

    If the mean exceeds the limit without a verdict, the limit is not judged; nor is a limit on an op or part
    if records of it are missing. Raises BadLimit for an op or part that neither run has, and if the length of
    a step is unknown.
    """
    row = _row(limit, difference)
    a, b, change = row["a"], row["b"], row["change"]
    if change is None:
        raise BadLimit(f"{limit.text}: {row.get('reason') or 'not known in one of the runs'}")
    if limit.percent is not None:
        # whole numbers: change / a > percent / 100
        over = change > 0 if a == 0 else change * 100 > limit.percent * a
    else:
        over = change > (limit.time or 0)
    lacks = difference.lacks if limit.op is not None or limit.part is not None else []
    unknown = row["verdict"] is None
    failed = over and not lacks and row["verdict"] in (SLOWER, NEW)
    share = f" ({change / a:+.1%})" if a else ""
    said = f"{limit.text}: {_ms(a)} became {_ms(b)}, {_ms(change, '+')}{share}"
    if lacks:
        said += f"; not comparable ({'; '.join(lacks)})"
    elif unknown:
        said += f"; the noise is not known ({row.get('reason') or difference.step['reason'][0] or NO_NOISE})"
    elif over and not failed:
        said += f", within the noise of {_ms(row['noise'])}"
    judged = not lacks and not (over and unknown)
    return Held(limit.text, failed, change, said, judged, judged and unknown)


def _row(limit: Limit, difference: Difference) -> dict[str, Any]:
    if limit.op is not None:
        if "*" in limit.op:
            pattern = pl.col("op").cast(pl.String).str.contains(translate_stars(limit.op))
        else:
            pattern = pl.col("op").cast(pl.String) == limit.op
        if difference.a.merged or difference.b.merged:
            raise BadLimit(f"{limit.text}: a merged job does not know the time of an op in a step")
        found = difference.of_op(pattern)
        if found is None:
            raise BadLimit(f"{limit.text}: no op of either run is called {limit.op}")
        return found.row(0, named=True)
    if limit.part is not None:
        parts = difference.parts
        rows = parts.filter(pl.col("part") == limit.part.strip())
        if rows.is_empty():
            names = ", ".join(sorted(parts["part"])) or "none is known"
            raise BadLimit(f"{limit.text}: the parts of a step are: {names}")
        return rows.row(0, named=True)
    return difference.step.row(0, named=True)


def translate_stars(name: str) -> str:
    """Return the regular expression for a name in which ``*`` matches any text."""
    return "^" + ".*".join(re.escape(part) for part in name.split("*")) + "$"


def _ms(ns: int, sign: str = "") -> str:
    return f"{ns / 1e6:{sign}.3f} ms"
