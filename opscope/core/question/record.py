"""The records of a question and its reports; everything that shows or merges an answer is made from them."""

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

#: Columns that add up in every table that does not say otherwise. The sum is meaningless for a point in time,
#: a mean, a maximum, or a time that includes the times of other rows.
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
#: The parameter that says whether texts stay categories; it is never passed to the answer function.
CATEGORIES: Final = "categories"


@dataclass(frozen=True, slots=True)
class Job:
    """Data that the answer of a merged job may need in addition to the sums of its question."""

    #: Whether the CPU is the device that the job ran on.
    cpu_only: bool
    #: The time (ns) spent in compilers; 0 if a GPU was used.
    compiling: int
    #: Which time missing costs are shares of (``coverage.shares_of``), and how much it is (ns).
    costs_of: tuple[str, int]
    #: Returns the job's answer to another question, by its name.
    answer: Callable[[str], pl.DataFrame]

    @property
    def device_time(self) -> int:
        """All device time (ns)."""
        return int(self.answer("summary")["device_time"].item() or 0)


@dataclass(frozen=True, slots=True)
class Sums:
    """How the answers of a job's parts are added up: as sums of integers, so their order changes nothing.

    ``table``: the name of the sums in a partial. ``of`` computes the sums from the profile of one part,
    ``added`` adds up the joined rows of several parts, and ``finished`` turns the sums into the answer.
    """

    table: str
    of: Callable[[Any], pl.DataFrame]
    added: Callable[[pl.DataFrame], pl.DataFrame]
    finished: Callable[[pl.DataFrame, Job], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Rows:
    """Each row belongs to a single process: the answer of a job has the rows of all parts.

    ``asked``: the parameters of the answer whose rows are kept.
    """

    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lacks:
    """The answers of parts cannot be added up; ``why`` is the reason shown to the user."""

    why: str


#: How a merged job answers. None: the same function computes it from the data that a merge keeps (steps,
#: collectives, totals).
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
    #: How to show the columns for which the unit alone does not decide it.
    forms: Sequence[Column] = ()
    #: Function (of report, profile, view) that makes the terminal's table, if the rows of the frame alone are
    #: not enough.
    table: Callable[[Report, Any, View], Table] | None = None
    #: The columns whose values add up over rows; None: the columns that do so in every table (``ADDITIVE``).
    sums: str | None = None
    #: Name of the report on the first screen that this one replaces if kernels were recorded but none has an
    #: op.
    without_ops: str | None = None
    #: Whether ``--json`` and ``--formats`` write it if no reports are named.
    written: bool = True
    #: Whether it has one row: an object in JSON, not a list.
    single: bool = False
    #: The word of ``--by`` that chooses it.
    by: str | None = None
    #: Whether it has rows only if a GPU was used.
    gpu_only: bool = False
    #: Whether a lean profile (``opscope.load``), which loads faster, has all that the report needs.
    lean: bool = False
    #: Other names that ``--reports`` accepts.
    aliases: Sequence[str] = ()
    #: Function that reorders the rows of the answer.
    arranged: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    #: The question; the question's record sets it.
    question: Question | None = field(default=None, compare=False, repr=False)

    @property
    def of(self) -> Question:
        """The question whose answer this report shows."""
        assert self.question is not None, f"{self.name} stands in no question"
        return self.question

    @property
    def holds(self) -> Frame:
        """The meaning of a row, and the columns with units and meanings."""
        return self.of.frame(self.asked)

    @property
    def keys(self) -> list[str]:
        """The columns that the terminal shows, in order; empty means all."""
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

        If another report of the question has the same parameters (``idle:by=stream``), the title and columns
        of that report are used; otherwise all columns are shown.
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
    #: How the answer of a merged job is made from the partials of its ranks.
    merged: Merging = None
    #: How the terminal, files and pages show the answer; empty: it is available in Python only.
    reports: Sequence[Report] = ()
    #: Whether a profile caches the answer.
    kept: bool = True
    #: Whether texts are returned as String; if false, they are returned as ``answer`` made them.
    as_text: bool = True
    #: Whether the question can be asked about part of a profile, with ``steps=`` and the other arguments of
    #: ``select``.
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
        """The question's name, which is also the name of the Profile method that asks it."""
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
        """Return the value of a parameter: the one in ``asked``, else its default."""
        default = () if name == self.several else self.signature[name].default
        return asked.get(name, default)

    def frame(self, asked: Mapping[str, Any]) -> Frame:
        """Return the frame that documents a call with these arguments, else the first frame."""
        words = [
            word
            for value in asked.values()
            for word in (value if isinstance(value, tuple) else (value,))
        ]
        call = f"{self.name}({', '.join(_quote(word) for word in words)})"
        return next((frame for frame in self.frames if frame.call == call), self.frames[0])

    def bound(self, given: Sequence[object], named: Mapping[str, object]) -> dict[str, Any]:
        """Return the value of every parameter; a parameter that was not given has its default.

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
        """Return the name under which a profile caches the answer with these values (``bound``)."""
        words = [self.name]
        for value in values.values():
            words += map(str, value) if isinstance(value, (tuple, list)) else [str(value)]
        return " ".join(words)

    def from_text(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return values of parameters given as text. Raises WrongParameter for an unknown name or value."""
        return values_of(self.name, self.parameters, given)


def why_not_merged(report: Report) -> str | None:
    """Return why a merged job lacks the report; None if no reason is known."""
    merged = report.of.merged
    return merged.why if isinstance(merged, Lacks) else None


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
