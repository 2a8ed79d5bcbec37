"""A call: it checks its arguments and makes an answer from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from opscope.core.question.parameters import WrongParameter
from opscope.core.question.suggest import unknown

from .answer import LEAST_TOKENS, MOST_TOKENS, TOKENS, Answer, Hint
from .runs import Run, Runs

if TYPE_CHECKING:
    from opscope.profile import Profile

Kind = Literal["text", "texts", "whole number", "number", "fields"]
#: The JSON Schema of each kind of value.
SCHEMAS: Final[Mapping[Kind, Mapping[str, Any]]] = {
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "whole number": {"type": "integer"},
    "number": {"type": "number"},
    "fields": {"type": "object", "additionalProperties": {"type": "string"}},
}
#: The most characters of a text, and entries of a list, that are accepted.
_LONGEST: Final = 4_096
_MOST: Final = 1_000
_STEPS: Final = re.compile(r"([0-9]{1,15})?(:)?([0-9]{1,15})?")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: the kind of its value, and what it means."""

    kind: Kind
    meaning: str
    least: float = 0
    most: float = 10**15


#: The run that a call is about.
RUN: Final = Argument("text", "number or file of a run; else the last opened")
#: The arguments that select a part of a run, as ``profile.select`` has them.
SELECTION: Final[Mapping[str, Argument]] = {
    "steps": Argument("text", "only these steps: 3:8, 3: or 3"),
    "device": Argument("whole number", "only this device", -1),
    "rank": Argument("whole number", "only this rank"),
    "layer": Argument("text", "only this layer; * stands for any text"),
    "range": Argument("text", "only this user range; * stands for any text"),
    "key": Argument("text", "op with which each iteration ends, where steps are not marked"),
}
#: The arguments of every call that answers with rows.
TABLE: Final[Mapping[str, Argument]] = {
    "from": Argument("whole number", "first row, from 0"),
    "tokens": Argument(
        "whole number", f"size of the answer, else {TOKENS}", LEAST_TOKENS, MOST_TOKENS
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. A module of ``agents/calls`` defines one as ``CALL``.

    ``subject``: the argument that ``opscope ask FILE "CALL SUBJECT"`` gives. ``needs``: arguments without
    which it cannot be made.
    """

    name: str
    meaning: str
    answer: Callable[[Asked], Answer]
    arguments: Mapping[str, Argument]
    subject: str | None = None
    needs: tuple[str, ...] = ()

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that are given, each of its kind. Raises WrongParameter."""
        values = {}
        for name, value in given.items():
            if name not in self.arguments:
                raise WrongParameter(
                    f"{self.name}: {unknown('argument', str(name)[:80], self.arguments)}"
                )
            if value is not None:
                values[name] = _value(f"{self.name}: {name}", self.arguments[name], value)
        for name in self.needs:
            if name not in values:
                raise WrongParameter(
                    f"{self.name}: {name} is needed: {self.arguments[name].meaning}"
                )
        return values

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        properties = {
            name: {**SCHEMAS[each.kind], "description": each.meaning}
            for name, each in self.arguments.items()
        }
        needs = {"required": list(self.needs)} if self.needs else {}
        return {"type": "object", "properties": properties, **needs, "additionalProperties": False}


@dataclass(slots=True)
class Asked:
    """A call with its arguments, and the runs that are open."""

    call: Call
    runs: Runs
    given: Mapping[str, Any]
    _run: Run | None = field(default=None, repr=False)

    @property
    def run(self) -> Run:
        """The run that the question is about. Raises NotOpened, BadInput."""
        if self._run is None:
            self._run = self.runs.run(self.given.get("run"))
        return self._run

    @property
    def entire(self) -> Profile:
        """The profile of the run."""
        return self.runs.profile(self.run)

    @property
    def profile(self) -> Profile:
        """The part of the run that is selected. Raises WrongParameter where there is none."""
        return self.part_of(self.run)

    def part_of(self, run: Run) -> Profile:
        """Return the part of a run that is selected. Raises WrongParameter where there is none."""
        entire = self.runs.profile(run)
        try:
            return entire.select(**self.where)
        except ValueError as error:
            raise WrongParameter(str(error)) from error

    @property
    def where(self) -> Any:
        """The selection, as ``profile.select`` takes it."""
        where = {name: self.given[name] for name in SELECTION if name in self.given}
        if "steps" in where:
            where["steps"] = _steps(where["steps"])
        return where

    @property
    def first(self) -> int:
        """The row that the answer begins with."""
        return int(self.given.get("from", 0))

    def hint(self, call: str, why: str, **arguments: Any) -> Hint:
        """Return a hint to a call about the same run."""
        run = {"run": self.given["run"]} if "run" in self.given else {}
        return Hint(call, {**arguments, **run}, why)


def _steps(text: str) -> tuple[int | None, int | None]:
    """Return the first and the last step of ``3:8``, ``3:``, ``:8`` or ``3``. Raises WrongParameter."""
    match = _STEPS.fullmatch(text.strip())
    first, colon, last = match.groups() if match else (None, None, None)
    if first is None and last is None:
        raise WrongParameter(f"steps is {text[:40]!r}; it must be like 3:8, 3: or 3")
    low = None if first is None else int(first)
    return low, (low if colon is None else None) if last is None else int(last)


def _value(about: str, argument: Argument, value: Any) -> Any:
    """Return a value, converted from text if needed. Raises WrongParameter."""
    kind = argument.kind
    if kind == "text" and isinstance(value, (str, int)) and not isinstance(value, bool):
        return _text(about, str(value))
    if kind == "texts":
        texts = [value] if isinstance(value, str) else value
        if (
            isinstance(texts, list)
            and len(texts) <= _MOST
            and all(isinstance(t, str) for t in texts)
        ):
            return [_text(about, each) for each in texts]
    if kind == "fields" and isinstance(value, dict) and len(value) <= _MOST:
        return {_text(about, str(name)): _text(about, str(each)) for name, each in value.items()}
    if kind in ("number", "whole number"):
        return _number(about, argument, value)
    raise WrongParameter(f"{about} must be {_AN[kind]}, not {repr(value)[:80]}")


_AN: Final[Mapping[Kind, str]] = {
    "text": "a text", "texts": "a text, or a list of texts", "whole number": "a whole number",
    "number": "a number", "fields": "an object of texts",
}  # fmt: skip


def _text(about: str, text: str) -> str:
    if len(text) > _LONGEST:
        raise WrongParameter(
            f"{about} has {len(text):,} characters; at most {_LONGEST:,} are taken"
        )
    return text


def _number(about: str, argument: Argument, value: Any) -> int | float:
    is_whole = argument.kind == "whole number"
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        number = int(value) if is_whole and not isinstance(value, float) else float(value)
        if is_whole and number != int(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise WrongParameter(
            f"{about} must be {_AN[argument.kind]}, not {repr(value)[:80]}"
        ) from None
    if not argument.least <= number <= argument.most:
        raise WrongParameter(
            f"{about} is {number:g}; it must be from {argument.least:g} to {argument.most:g}"
        )
    return int(number) if is_whole else number
