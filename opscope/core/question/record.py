"""The record of a question, from which its method, reports, merge of ranks, viewer and documentation come."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .column import Frame
from .parameters import Parameter, WrongParameter, value_of
from .report import Report
from .suggest import unknown

if TYPE_CHECKING:
    import polars as pl

#: The parameter of an answer that says whether texts stay categories; it is never passed to the answer.
CATEGORIES: Final = "categories"


@dataclass(frozen=True, slots=True)
class Sums:
    """How the answers of a job's parts add up: by sums of integers, so that their order changes nothing.

    ``table``: the sums' name in a partial. ``of`` makes them of one part's profile, ``added`` adds up the
    joined rows of several parts, and ``finished`` makes the answer of them.
    """

    table: str
    of: Callable[[Any], pl.DataFrame]
    added: Callable[[pl.DataFrame], pl.DataFrame]
    finished: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Rows:
    """Each row is of one process alone: the answer of a job has the rows of all parts.

    ``asked``: the parameters with which the rows are kept.
    """

    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lacks:
    """The answers of parts cannot be added up; ``why`` says so to the user."""

    why: str


#: How a merged job answers; None: by the same function, of what a merge keeps (steps, collectives, totals).
Merging: TypeAlias = "Sums | Rows | Sequence[Rows] | Lacks | None"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question about a trace. The module that answers it defines this record as ``QUESTION``.

    ``core/question/index.py`` lists the modules. ``frames`` has a frame for each call that returns other
    columns; the first call's name is the question's, and the name of the method of a Profile.
    """

    #: Returns the answer of a profile. Its parameters (without the first) and its docstring are the method's.
    answer: Callable[..., pl.DataFrame]
    #: The frames: the meaning of a row, and each column with unit and meaning.
    frames: Sequence[Frame]
    #: What each parameter of ``answer`` accepts.
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    #: How a job's answer is made of its ranks' partials.
    merged: Merging = None
    #: How terminal, files and pages show it; none: only Python asks it.
    reports: Sequence[Report] = ()
    #: Whether the answer is kept by a profile, for those who ask again.
    kept: bool = True
    #: Whether texts are returned as String; false: as ``answer`` returns them.
    as_text: bool = True
    #: Whether a profile answers for a part of it, by ``steps=`` and the other arguments of ``select``.
    selectable: bool = True

    def __post_init__(self) -> None:
        names = [name for name in self.signature if name != CATEGORIES]
        if set(names) != set(self.parameters):
            raise TypeError(
                f"{self.name}: parameters {', '.join(self.parameters) or 'none'}, but the answer takes"
                f" {', '.join(names) or 'none'}"
            )
        object.__setattr__(
            self, "reports", tuple(replace(one, question=self) for one in self.reports)
        )

    @property
    def name(self) -> str:
        """The question's name: that of the method which asks it."""
        return self.frames[0].method

    @property
    def signature(self) -> dict[str, inspect.Parameter]:
        """The parameters of the answer, without the profile."""
        return dict(list(inspect.signature(self.answer).parameters.items())[1:])

    @property
    def several(self) -> str | None:
        """The name of the parameter that takes any number of values (``*by``); None without one."""
        kinds = self.signature.items()
        return next((name for name, kind in kinds if kind.kind is kind.VAR_POSITIONAL), None)

    def frame(self, asked: Mapping[str, Any]) -> Frame:
        """Return the frame of the call with these arguments, else the first frame."""
        words = [
            word
            for value in asked.values()
            for word in (value if isinstance(value, tuple) else (value,))
        ]
        call = f"{self.name}({', '.join(_quoted(word) for word in words)})"
        return next((frame for frame in self.frames if frame.call == call), self.frames[0])

    def bound(self, given: Sequence[object], named: Mapping[str, object]) -> dict[str, Any]:
        """Return each parameter's value, those not given by their defaults.

        Raises TypeError for a wrong number or name of arguments, WrongParameter for a wrong value.
        """
        kinds = {name: kind for name, kind in self.signature.items() if name != CATEGORIES}
        bound = inspect.Signature(list(kinds.values())).bind(*given, **named)
        bound.apply_defaults()
        values = {}
        for name, value in bound.arguments.items():
            if kinds[name].kind is inspect.Parameter.VAR_POSITIONAL:
                values[name] = tuple(value_of(name, self.parameters[name], one) for one in value)
            else:
                values[name] = value_of(name, self.parameters[name], value)
        return values

    def from_text(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return values of parameters given as text. Raises WrongParameter for an unknown name or value."""
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in self.parameters:
                if not self.parameters:
                    raise WrongParameter(f"{self.name} takes no parameters, so no {name!r}")
                raise WrongParameter(f"{self.name}: {unknown('parameter', name, self.parameters)}")
            parameter = self.parameters[name]
            if parameter.several:
                values[name] = tuple(
                    value_of(name, parameter, word) for word in text.split("+") if word
                )
            else:
                values[name] = value_of(name, parameter, text)
        return values


def why_not_merged(report: Report) -> str | None:
    """Return why a job that was merged lacks the report; None where nothing is known."""
    merged = report.of.merged
    return merged.why if isinstance(merged, Lacks) else None


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
