"""The record of a report: how terminal, files and pages show the answer to a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .column import Frame
from .layout import Column, Table

if TYPE_CHECKING:
    import polars as pl

    from .record import Question


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
    #: The text shown if the table has no rows.
    empty: str
    #: The arguments with which the question is asked.
    asked: Mapping[str, Any] = field(default_factory=dict)
    #: Columns that the terminal shows, in this order; if empty, all.
    shown: Sequence[str] = ()
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

    def frame(self, profile: Any) -> pl.DataFrame:
        """Return the report's frame of a profile, with exactly the columns of ``holds``."""
        several = self.of.several
        named = {name: value for name, value in self.asked.items() if name != several}
        given = self.asked.get(several, ()) if several else ()
        answer: pl.DataFrame = profile.ask(self.of, *given, **named)
        return answer if self.arranged is None else self.arranged(answer)

    def asking(self, given: Mapping[str, str]) -> Report:
        """Return the report with parameters that are given as text. Raises WrongParameter."""
        return replace(self, asked={**self.asked, **self.of.from_text(given)})

    @property
    def heading(self) -> str:
        """The title, with the values of the parameters that it names."""
        if "{" not in self.title:
            return self.title
        of = self.of
        values = {name: kind.default for name, kind in of.signature.items()} | dict(self.asked)
        return self.title.format(
            **{name: of.parameters[name].written(values[name]) for name in of.parameters}
        )

    def additive(self, column: str) -> bool:
        """Whether the values of ``column`` may be added up over the rows."""
        return column in (ADDITIVE if self.sums is None else self.sums).split()


#: Columns that add up in every table that does not say otherwise. A point in time, a mean, a maximum, or a
#: time that holds that of other rows does not: its sum says nothing.
ADDITIVE = (
    "device_time device_self host_self self_time duration total kernel_time kernel_busy"
    " tensor_core_time tensor_core_undetermined_time ideal_time"
    " idle_time busy_time host_wait kernel_wait other_wait unknown_wait waiting_time transfer_time"
    " wait_time in_calls launching_time shorter_time short_time"
    " flops matrix_flops vector_flops bytes message_bytes counted_flops model_flops counted_bytes"
    " model_bytes f16_flops f32_flops f64_flops tensor_flops dram_bytes dram_read dram_written"
    " self_allocated self_increase self_allocations allocations held_blocks"
    " calls kernels copies launches short_launches collectives"
)
