"""The object that a question examines: a trace, the op behind each kernel, and the answers to other
questions.

Detectors of other packages get the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution, attribute
from opscope.core.attribution.replaced_steps import replaced_steps
from opscope.core.once import lock_of, once
from opscope.core.perf.devices.of_trace import trace_device
from opscope.core.perf.devices.peaks import Device
from opscope.core.perf.devices.vendors import call_names
from opscope.core.question import registry
from opscope.core.question.methods import Questions
from opscope.core.question.record import CATEGORIES, Question
from opscope.core.tables.columns import as_text, distinct_values, hand_back
from opscope.core.tables.trace import SELECTED, Trace

if TYPE_CHECKING:
    from typing_extensions import Self

_Part = TypeVar("_Part")


class Answers(Questions):
    """A trace, and the answers to the questions that were asked of it so far.

    Each question of ``core/question/index.py`` is a method. ``of`` computes intermediate results that several
    questions share.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._frames: dict[str, pl.DataFrame] = {}
        self._texts: dict[str, tuple[pl.DataFrame, pl.DataFrame]] = {}
        self._parts: dict[Callable[[Any], Any], Any] = {}
        #: For a selection: the whole that it is part of, and which of its kernels are kept.
        self._part_of: tuple[Answers, NDArray[np.bool_]] | None = None

    @once
    def attribution(self) -> Attribution:
        """The op to which each kernel and copy belongs."""
        return attribute(self.trace)

    def of(self, part: Callable[[Any], _Part]) -> _Part:
        """Return the result of ``part`` applied to this object; it is computed once, by one thread."""
        with lock_of(self, f"{part.__module__}.{part.__qualname__}"):
            if part not in self._parts:
                self._parts[part] = self._make(part)
            value: _Part = self._parts[part]
        return value

    def _make(self, part: Callable[[Any], _Part]) -> _Part:
        return part(self)

    def _give(self, part: Callable[[Any], _Part], value: _Part) -> None:
        """Let ``of(part)`` return ``value``."""
        self._parts[part] = value

    def _has(self, part: Callable[[Any], Any]) -> bool:
        """Whether ``of(part)`` was computed or set."""
        return part in self._parts

    def ask(self, question: Question | str, *given: Any, **named: Any) -> pl.DataFrame:
        """Return the answer to a question, its parameters given as to its method.

        ``categories``: texts stay categories. Raises KeyError for an unknown name, TypeError for wrong
        arguments, and ValueError (``WrongParameter``) for a wrong value.
        """
        if isinstance(question, str):
            question = registry.question(question)
        categories = bool(named.pop(CATEGORIES, False))
        values = question.bound(given, named)
        if not question.kept:
            frame = self._answer(question, values)
            return as_text(frame) if question.as_text and not categories else frame
        name = question.key(values)
        frame = self._frame(name, lambda: self._answer(question, values))
        return self._as_text(name, frame) if question.as_text and not categories else frame

    def _answer(self, question: Question, values: dict[str, Any]) -> pl.DataFrame:
        given = values.pop(question.several) if question.several else ()
        return question.answer(self, *given, **values)

    def _frame(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return the frame of this name, computed once."""
        with lock_of(self, f"frame of {name}"):
            if name not in self._frames:
                self._frames[name] = make()
                hand_back()  # after a million kernels, glibc keeps 0.3 GB that the frame needed
            return self._frames[name]

    def _as_text(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with its texts as String; the conversion is kept."""
        with lock_of(self, f"text of {name}"):
            cached = self._texts.get(name)
            if cached is None or cached[0] is not frame:
                cached = self._texts[name] = frame, as_text(frame)
        return cached[1]

    def _columns_of(
        self, name: str, columns: Collection[str], row: int | None = None
    ) -> pl.DataFrame:
        """Return at least ``columns`` of the frame kept as ``name``, with texts as categories; only one
        ``row`` if given.

        A saved profile reads only these columns, and releases them after use.
        """
        frame = self._frames[name] if name in self._frames else self.ask(name, categories=True)
        return frame if row is None else frame[row]

    def _own_columns(
        self, table: str, wanted: Sequence[str], row: int | None = None
    ) -> tuple[pl.DataFrame, int]:
        """Return columns of a trace table, only one ``row`` if given, and the table's number of rows. Of a
        saved table that was not read yet, only these columns are read."""
        rows = self.trace[table]
        columns = rows.select(wanted)
        return columns if row is None else columns[row], len(rows)

    def _with_steps(self, steps: pl.DataFrame, note: str, keep: bool) -> Self:
        """Return this profile with ``steps`` in place of its own; with ``keep``, in addition to its own."""
        attribution = replaced_steps(self.attribution, steps, note, keep=keep)
        part = type(self)(attribution.trace)
        part.attribution = attribution
        return part

    @property
    def _made(self) -> set[str]:
        """The names of the frames computed so far."""
        return {*self._frames}

    def _give_back(self) -> None:
        """Release the frames that can be read again: those that a saved profile stores."""

    def _all_notes(self) -> pl.DataFrame:
        """The notes of reading, and of linking kernels to ops."""
        _ = self.attribution
        return self.trace["notes"]

    def _is_at_hand(self, name: str) -> bool:
        """Whether the answer to a question without parameters was computed already, or was saved with the
        profile."""
        return name in self._frames

    @property
    def selected(self) -> str | None:
        """What was selected, in words (``steps 3 to 8, device 0``); None for a whole profile."""
        selection: str | None = self.trace.origin.get(SELECTED, {}).get("what")
        return selection

    @property
    def has_ranges(self) -> bool:
        """Whether the trace has any range: an op, a layer, a step."""
        return len(self.trace["ranges"]) > 0

    @property
    def merged_of(self) -> str | None:
        """The part of a job that a profile was merged from: ``997 of 1,000 ranks``; None if it was not
        merged."""
        return None

    @property
    def call_names(self) -> list[str]:
        """The names of the first thousand calls of the runtime, sorted."""
        return call_names(self.trace)

    @property
    def domains(self) -> list[str]:
        """The domains of the trace's ranges, sorted."""
        return sorted(distinct_values(self.trace["ranges"]["domain"]).drop_nulls().cast(pl.String))

    @property
    def cpu_only(self) -> bool:
        """Whether the trace shows no use of a GPU, so that the CPU is the device."""
        return not self.trace.used_gpu

    @once
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits and None, or None and the reason why the limits are not known.

        Limits are dense peaks in FLOP/s and bandwidth in bytes/s; their ``note`` lists contradictions in the
        trace.
        """
        on_gpu = any(len(self.trace[table]) for table in ("kernels", "memops"))
        return trace_device(self.trace["devices"], on_gpu, self.trace["processes"]["versions"])
