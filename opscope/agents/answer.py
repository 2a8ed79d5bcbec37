"""An answer and its JSON: as many rows as a budget of tokens holds, and how to get the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opscope.core.question import forms, names, units

if TYPE_CHECKING:
    import polars as pl

#: A token is counted as so many bytes of UTF-8.
BYTES_A_TOKEN: Final = 4
#: Tokens of an answer: by default, and the bounds of what may be asked for.
TOKENS, LEAST_TOKENS, MOST_TOKENS = 1_500, 300, 20_000
#: The part of the budget that sentences and hints may take beside a table.
_SENTENCES: Final = 0.6
#: Bytes of a sentence, and entries of a list, at each attempt to make an answer fit.
_ATTEMPTS: Final = ((700, 8), (400, 5), (240, 3), (120, 2), (60, 1), (24, 1))
#: The order in which parts are dropped where they are too long together.
_LEAST_NEEDED: Final = (
    "unknown",
    "next",
    "where",
    "run",
    "try",
    "cause",
    "finding",
    "said",
    "cannot_tell",
)
#: The part of the budget that rows should have before columns are left out.
_OF_ROWS: Final = 0.2
#: Characters of a text in a cell at each attempt to show some rows.
_CELLS: Final = (120, 60, 30, 16)
#: Rows that a table should have at least before its texts are shortened further.
_FEW_ROWS: Final = 5
#: Bytes of the smallest possible row: it bounds how many rows are looked at.
_LEAST_ROW: Final = 8
#: Digits of a number that is not whole.
_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class Hint:
    """The next call to make: its name, its arguments, and why."""

    call: str
    arguments: Mapping[str, Any]
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the hint as JSON has it."""
        said = {"why": self.why} if self.why else {}
        return {"call": self.call, "arguments": dict(self.arguments), **said}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an answer. ``columns``: their names with their units. ``total``: how many there are.
    ``first``: the row that is shown first, from 0. ``part`` returns a number of rows from a given one on."""

    columns: Mapping[str, str]
    total: int
    part: Callable[[int, int], Sequence[Sequence[Any]]]
    first: int = 0

    @classmethod
    def of(cls, frame: pl.DataFrame, units: Mapping[str, str], first: int = 0) -> Rows:
        """Return the rows of a frame; a column without a unit is text."""
        columns = {name: units.get(name, "text") for name in frame.columns}
        return cls(
            columns, len(frame), lambda start, count: frame[start : start + count].rows(), first
        )

    @classmethod
    def of_list(
        cls, rows: Sequence[Sequence[Any]], columns: Mapping[str, str], first: int = 0
    ) -> Rows:
        """Return rows that are there as a list."""
        return cls(columns, len(rows), lambda start, count: rows[start : start + count], first)


@dataclass(slots=True)
class Answer:
    """What a call answers.

    ``verdict``: ``cause``, ``healthy``, ``nothing found`` or ``cannot tell``; None for calls
    without a verdict. ``cause``: the verdict's cause in fields; ``finding``: a detector's finding,
    which is no verdict; ``where``: where in the program it lies. ``said``: sentences with their
    figures. ``unknown``: columns that no row has a value of.
    """

    call: str
    run: str | None = None
    verdict: str | None = None
    cause: Mapping[str, Any] | None = None
    where: Mapping[str, Any] | None = None
    said: Sequence[str] = ()
    to_try: str | None = None
    rows: Rows | None = None
    unknown: Sequence[str] = ()
    cannot_tell: Sequence[str] = ()
    next: Sequence[Hint] = ()
    finding: Mapping[str, Any] | None = None


def tokens(text: str) -> int:
    """Return how many tokens a text is counted as: its bytes of UTF-8 by four, rounded up."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


def as_json(answer: Answer, budget: int = TOKENS) -> dict[str, Any]:
    """Return the answer as JSON has it, in at most ``budget`` tokens of compact JSON (``text``).

    Sentences are shortened, and rows left out, until it fits; ``shown`` then says so, and the same call with
    the arguments in ``rest`` gives what follows.
    """
    size = budget * BYTES_A_TOKEN
    room = size if answer.rows is None else round(size * _SENTENCES)
    head: dict[str, Any] = {}
    for longest, most in _ATTEMPTS:
        head = _head(answer, longest, most)
        if len(_encoded(head)) <= room:
            break
    for name in _LEAST_NEEDED:  # where names or arguments alone are too long
        if len(_encoded(head)) > room:
            head.pop(name, None)
    return head if answer.rows is None else _with_rows(head, answer.rows, size)


def text(fields: Mapping[str, Any]) -> str:
    """Return an answer's JSON as text: compact, in UTF-8 without escapes."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _head(answer: Answer, longest: int, most: int) -> dict[str, Any]:
    """Return everything but the rows: sentences of at most ``longest`` bytes, at most ``most`` of a kind."""
    hints = [hint.as_json() for hint in answer.next[:most]]
    fields = {
        "call": answer.call,
        "run": None if answer.run is None else clip(answer.run, longest),
        "verdict": answer.verdict,
        "cause": _fields(answer.cause or {}, longest),
        "finding": _fields(answer.finding or {}, longest),
        "where": _fields(answer.where or {}, longest),
        "said": _some(answer.said, longest, most),
        "try": None if answer.to_try is None else clip(answer.to_try, longest),
        "unknown": _some(answer.unknown, longest, 4 * most),
        "cannot_tell": _some(answer.cannot_tell, longest, most),
        "next": hints,
    }
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _some(texts: Sequence[str], longest: int, most: int) -> list[str]:
    shown = [clip(each, longest) for each in texts[:most]]
    return [*shown, f"and {len(texts) - most} more"] if len(texts) > most else shown


def _fields(values: Mapping[str, Any], longest: int) -> dict[str, Any]:
    """Return the fields that are known, numbers rounded and texts shortened."""
    fields = {}
    for name, value in values.items():
        if value is not None:
            fields[name] = _cell(value, longest)
    return fields


def _cell(value: Any, longest: int) -> Any:
    """Return a value as JSON can hold it: a float with four digits, a text without control characters."""
    if isinstance(value, float):
        return (
            float(f"{value:.{_DIGITS}g}") if value == value and abs(value) != float("inf") else None
        )
    if isinstance(value, (bool, int, dict)) or value is None:
        return value
    return clip(str(value), longest)


def clip(sentence: str, longest: int) -> str:
    """Return a text in at most ``longest`` bytes of UTF-8, ended by an ellipsis where it is shortened."""
    plain = units.visible(sentence.encode(errors="backslashreplace").decode())
    if len(plain.encode()) <= longest:
        return plain
    return plain.encode()[: max(0, longest - 3)].decode(errors="ignore") + "…"


def _with_rows(head: dict[str, Any], rows: Rows, size: int) -> dict[str, Any]:
    """Return the answer with as many rows as fit in ``size`` bytes, and only the first columns if all do
    not fit."""
    part = rows.part(rows.first, size // _LEAST_ROW)
    hints = {"next": head.pop("next")} if "next" in head else {}
    names = list(rows.columns)
    # the longest values of these fields
    last = {
        "shown": _extent(rows, len(part)),
        "rest": _rest(rows.total),
        "columns_left_out": len(names),
    }
    while True:
        fields = {**head, "columns": {name: rows.columns[name] for name in names}, "rows": []}
        room = size - len(_encoded({**fields, **last, **hints}))
        if room >= size * _OF_ROWS or len(names) <= 1:
            break
        names.pop()
    for longest in _CELLS:
        fields["rows"] = _fitting(_cells(part, names, longest), room)
        if len(fields["rows"]) >= min(_FEW_ROWS, len(part)):
            break
    after = rows.first + len(fields["rows"])
    fields["shown"] = _extent(rows, len(fields["rows"]))
    if after < rows.total:
        fields["rest"] = _rest(after)
    if len(names) < len(rows.columns):
        fields["columns_left_out"] = len(rows.columns) - len(names)
    return {**fields, **hints}


def _extent(rows: Rows, count: int) -> str:
    if not count:
        return f"none of {rows.total} rows"
    return f"rows {rows.first} to {rows.first + count - 1} of {rows.total}"


def _rest(first: int) -> dict[str, int]:
    """Return the arguments with which the same call gives the following rows."""
    return {"from": first}


def _fitting(cells: list[list[Any]], room: int) -> list[list[Any]]:
    """Return the first rows whose JSON, separated by commas, fits in ``room`` bytes."""
    used = 0
    for number, row in enumerate(cells):
        used += len(_encoded(row)) + 1
        if used > room:
            return cells[:number]
    return cells


def _cells(rows: Sequence[Sequence[Any]], columns: Sequence[str], longest: int) -> list[list[Any]]:
    """Return the rows' values of the first columns. Different texts of a column stay different when
    shortened, as in a table of the terminal."""
    shown = []
    for name, values in zip(columns, zip(*rows, strict=True), strict=False):
        texts = [units.visible(value) for value in values if isinstance(value, str)]
        (form,) = forms.columns([name])
        short = iter(names.shortened(texts, longest, form.cut, form.parts))
        shown.append(
            [next(short) if isinstance(value, str) else _cell(value, longest) for value in values]
        )
    return [list(row) for row in zip(*shown, strict=True)]
