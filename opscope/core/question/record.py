"""The records of a question and of its reports, from which all that shows or merges an answer is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .column import Frame
from .layout import Column, Table
from .parameters import Parameter, value_of, values_of

if TYPE_CHECKING:
    import polars as pl

#: Columns that add up in every table that does not say otherwise. A point in time, a mean, a maximum, or a
#: time that holds that of other rows does not: its sum says nothing.
ADDITIVE: Final = (
    "device_time device_self host_self self_time duration total kernel_time kernel_busy"
    " tensor_core_time tensor_core_undetermined_time ideal_time"
    " idle_time busy_time host_wait kernel_wait other_wait unknown_wait waiting_time transfer_time"
    " wait_time in_calls launching_time shorter_time short_time"
    " flops matrix_flops vector_flops bytes message_bytes counted_flops model_flops counted_bytes"
    " model_bytes f16_flops f32_flops f64_flops tensor_flops dram_bytes dram_read dram_written"
    " self_allocated self_increase self_allocations allocations held_blocks"
    " calls kernels copies launches short_launches collectives"
)
#: The parameter of an answer that says whether texts stay categories; it is never passed to the answer.
CATEGORIES: Final = "categories"


@dataclass(frozen=True, slots=True)
class Job:
    """What the answer of a merged job may need beside its own sums."""

    #: Whether the CPU is the device.
    cpu_only: bool
    #: The time (ns) in compilers; 0 where a GPU was used.
    compiling: int
    #: The time (ns) of which the shares of missing costs are.
    costs_of: int
    #: Returns the job's answer to another question, by its name.
    answer: Callable[[str], pl.DataFrame]

    @property
    def device_time(self) -> int:
        """All device time (ns)."""
        return int(self.answer("summary")["device_time"].item() or 0)


@dataclass(frozen=True, slots=True)
class Sums:
    """How the answers of a job's parts add up: by sums of integers, so that their order changes nothing.

    ``table``: the sums' name in a partial. ``of`` makes them of one part's profile, ``added`` adds up the
    joined rows of several parts, and ``finished`` makes the answer of them.
    """

    table: str
    of: Callable[[Any], pl.DataFrame]
    added: Callable[[pl.DataFrame], pl.DataFrame]
    finished: Callable[[pl.DataFrame, Job], pl.DataFrame]


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


@dataclass(frozen=True, slots=True)
class View:
    """How much of a report to show: the first ``top`` rows (None: all).

    ``first``: it is part of the first screen, shown if the user chose no reports; ``enough`` then ends a
    table once its rows make up nearly all of the time.
    """

    top: int | None = 20
    first: bool = False
    enough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report of a question. ``core/question/index.py`` has their order."""

    #: Its name: used by ``--reports``, as key in JSON, and in the names of files.
    name: str
    #: The heading of its table.
    title: str
    #: The text shown if the table has no rows. It may name parameters, as the title may: ``{below}``.
    empty: str
    #: The arguments with which the question is asked.
    asked: Mapping[str, Any] = field(default_factory=dict)
    #: Columns that the terminal shows, in this order, separated by spaces; if empty, all.
    shown: str = ""
    #: How to show the columns whose unit alone does not define it.
    forms: Sequence[Column] = ()
    #: Makes the terminal's table (of report, profile, view), if the frame's rows alone are not enough.
    table: Callable[[Report, Any, View], Table] | None = None
    #: The columns whose values add up over rows; None: those that do so in every table (``ADDITIVE``).
    sums: str | None = None
    #: The report of the first screen whose place it takes where kernels were recorded and none has an op.
    without_ops: str | None = None
    #: Whether ``--json`` and ``--formats`` write it if no reports are named.
    written: bool = True
    #: Whether it has one row: an object in JSON, not a list.
    single: bool = False
    #: The word of ``--by`` that chooses it.
    by: str | None = None
    #: Whether it has rows only if a GPU was used.
    gpu_only: bool = False
    #: Whether a lean profile (``opscope.load``) has all that it needs; such a profile loads faster.
    lean: bool = False
    #: Other names that ``--reports`` accepts.
    aliases: Sequence[str] = ()
    #: Puts the rows of the answer in another order.
    arranged: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    #: The question; its record fills it in.
    question: Question | None = field(default=None, compare=False, repr=False)

    @property
    def of(self) -> Question:
        """The question whose answer it shows."""
        assert self.question is not None, f"{self.name} stands in no question"
        return self.question

    @property
    def holds(self) -> Frame:
        """Its rows and columns, with units and meanings."""
        return self.of.frame(self.asked)

    @property
    def keys(self) -> list[str]:
        """The columns that the terminal shows, in order; none: all."""
        return self.shown.split()

    def frame(self, profile: Any) -> pl.DataFrame:
        """Return the report's frame of a profile, with exactly the columns of ``holds``."""
        several = self.of.several
        named = {name: value for name, value in self.asked.items() if name != several}
        given = self.asked.get(several, ()) if several else ()
        answer: pl.DataFrame = profile.ask(self.of, *given, **named)
        return answer if self.arranged is None else self.arranged(answer)

    def asking(self, given: Mapping[str, str]) -> Report:
        """Return the report with parameters that are given as text. Raises WrongParameter.

        Where these are what another report of the question is asked with (``idle:by=stream``), it has that
        report's title and columns; where no report is, all columns.
        """
        of, values = self.of, self.of.from_text(given)
        asked = {**self.asked, **values}
        stated = {name for report in of.reports for name in report.asked}
        if stated.isdisjoint(values):
            return replace(self, asked=asked)
        for report in of.reports:
            if all(of.value(name, asked) == of.value(name, report.asked) for name in stated):
                return replace(report, name=self.name, asked=asked)
        return replace(self, asked=asked, shown="")

    @property
    def heading(self) -> str:
        """The title, with the values of the parameters that it names (``{below}``)."""
        return self._fill(self.title)

    @property
    def no_rows(self) -> str:
        """``empty``, with the values of the parameters that it names."""
        return self._fill(self.empty)

    def _fill(self, text: str) -> str:
        if "{" not in text:
            return text
        of = self.of
        written = {
            name: parameter.written(of.value(name, self.asked))
            for name, parameter in of.parameters.items()
        }
        return text.format(**written)

    def additive(self, column: str) -> bool:
        """Whether the values of ``column`` may be added up over the rows."""
        return column in (ADDITIVE if self.sums is None else self.sums).split()


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
            self, "reports", tuple(replace(report, question=self) for report in self.reports)
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

    def value(self, name: str, asked: Mapping[str, Any]) -> Any:
        """Return the value of a parameter: that in ``asked``, else its default."""
        default = () if name == self.several else self.signature[name].default
        return asked.get(name, default)

    def frame(self, asked: Mapping[str, Any]) -> Frame:
        """Return the frame of the call with these arguments, else the first frame."""
        words = [
            word
            for value in asked.values()
            for word in (value if isinstance(value, tuple) else (value,))
        ]
        call = f"{self.name}({', '.join(_quote(word) for word in words)})"
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
                values[name] = tuple(value_of(name, self.parameters[name], item) for item in value)
            else:
                values[name] = value_of(name, self.parameters[name], value)
        return values

    def key(self, values: Mapping[str, Any]) -> str:
        """Return the name under which the answer with these values (``bound``) is kept."""
        words = [self.name]
        for value in values.values():
            words += map(str, value) if isinstance(value, (tuple, list)) else [str(value)]
        return " ".join(words)

    def from_text(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return values of parameters given as text. Raises WrongParameter for an unknown name or value."""
        return values_of(self.name, self.parameters, given)


def why_not_merged(report: Report) -> str | None:
    """Return why a job that was merged lacks the report; None where nothing is known."""
    merged = report.of.merged
    return merged.why if isinstance(merged, Lacks) else None


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
