"""Cut an attributed trace down to some of its steps, devices, ranks, layers or user ranges.

The whole trace is attributed first. The cut keeps the op of every kernel that it keeps, so that a kernel has
the same op, layer and step as in the whole trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.ops.kernels import called, kernel_steps
from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.ops.selected_trace import Cut, Kept, span
from opscope.core.analysis.ops.spans import Flags, Spans, both, inside, spans_of
from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.enclosing import is_user_range
from opscope.core.dialects import serving
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import at, compact, pieces
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import SELECTED, Trace

#: The fields with texts, in which a word may be misspelt.
_TEXTS: Final = ("layer", "range")
#: Names that a message lists at most.
_NAMED: Final = 6


class NothingSelected(ValueError):
    """The selection matches nothing in the trace; the message says what the trace has."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection; an empty field keeps everything. Only rows that satisfy every field are kept.

    ``steps``: first and last step number, both included, None for an open end. ``devices``: device numbers.
    ``ranks``: ranks of the job. ``layers``: module paths, with all inside them, or patterns
    (``encoder.*.attention``). ``ranges``: texts of user ranges, or patterns.
    """

    steps: tuple[int | None, int | None] | None = None
    devices: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    layers: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether it leaves anything out."""
        return any(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        """Return it in words: ``steps 3 to 8, device 0``."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        if self.steps is not None:
            yield _words("step", self.steps)
        for word, values in (
            ("device", self.devices),
            ("rank", self.ranks),
            ("layer", self.layers),
            ("range", self.ranges),
        ):
            if values:
                yield _words(word, values)


def _words(word: str, values: Sequence[object]) -> str:
    """Return ``steps 3 to 8`` or ``devices 0, 1``."""
    if word != "step":
        return f"{word}{'s' if len(values) > 1 else ''} {', '.join(map(str, values))}"
    first, last = values
    if last is None:
        return f"steps from {first}"
    if first is None:
        return f"steps up to {last}"
    return f"step {first}" if first == last else f"steps {first} to {last}"


def select(ops: Ops, selection: Selection) -> tuple[Ops, Flags, Flags]:
    """Return the ops of the selected part of the trace, and which kernels and copies are kept.

    Costs are those of the whole trace: an op whose forward op is left out has the same FLOPs.

    Raises NothingSelected if a field of ``selection`` matches nothing in the trace.
    """
    _refuse_unknown(ops, selection)
    kept = _keep(ops, selection)
    if not any(flags.any() for flags in (kept.ops, kept.kernels, kept.memops)):
        raise NothingSelected(f"no op, kernel or copy is of {selection} together")
    attribution = ops.attribution
    low, high = span(attribution.trace, kept)
    cut = Cut(attribution, kept)
    trace = cut.trace()
    trace.origin[SELECTED] = {
        "what": str(selection),
        "span": None if low is None else (low, high),
        "within": kept.within,
        "windows": kept.windows,
    }
    left = sum(int((~flags).sum()) for flags in (kept.kernels, kept.memops))
    description = f"selected: {selection}; the kernels, copies and sets of all else are left out"
    trace.note("info", description, left)
    part = Ops(cut.attribution(trace))
    part.costs = cut.costs(ops.costs, part.attribution)
    return part, kept.kernels, kept.memops


def _refuse_unknown(ops: Ops, selection: Selection) -> None:
    """Raise NothingSelected for a field that nothing in the trace satisfies, listing what the trace has."""
    for word, wanted, there in _there(ops, selection):
        if word == "step":
            assert selection.steps is not None
            if not _among(np.array(there, np.int64), selection.steps).any():
                has = f"steps {there[0]} to {there[-1]}" if there else "no steps"
                raise NothingSelected(
                    f"nothing here is of {_words(word, wanted)}: the trace has {has}"
                )
            continue
        matches = _layer_matches if word == "layer" else _matches
        lost = [
            name_wanted
            for name_wanted in wanted
            if not any(matches(str(has), str(name_wanted)) for has in there)
        ]
        if lost:
            names = [str(has) for has in there]
            near = get_close_matches(str(lost[0]), names, _NAMED, 0.7) if word in _TEXTS else []
            has = (
                f"did you mean {', '.join(near)}?"
                if near
                else f"the trace has {_list(word, names)}"
            )
            raise NothingSelected(f"nothing here is of {word} {lost[0]}: {has}")


def _there(ops: Ops, selection: Selection) -> Iterator[tuple[str, Sequence[object], list[Any]]]:
    """Yield for each used field its word, the wanted values, and the sorted values in the trace."""
    trace, meaning = ops.attribution.trace, ops.attribution.meaning
    if selection.steps is not None:
        is_step, number = _steps(ops.attribution)
        yield "step", selection.steps, np.unique(number[is_step]).tolist()
    if selection.devices:
        tables = ("kernels", "memops", "allocations", "devices")
        numbers = {device for name in tables for device in trace[name]["device"].unique().to_list()}
        yield "device", selection.devices, sorted(numbers - {None})
    if selection.ranks:
        yield "rank", selection.ranks, sorted(trace["processes"]["rank"].drop_nulls().unique())
    if selection.layers:
        layers = ops.layers(ops.rows).unique().drop_nulls().cast(pl.String)
        yield "layer", selection.layers, sorted(layers)
    if selection.ranges:
        both = zip(meaning.readings, meaning.texts, strict=True)
        texts = {text for one, text in both if is_user_range(one)}
        labels = {label for text in texts if (label := serving.label(text)) is not None}
        yield "range", selection.ranges, sorted(texts | labels)


def _list(word: str, values: Sequence[object]) -> str:
    if not values:
        return f"no {word}s"
    more = f" and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
    several = "s" if len(values) > 1 else ""
    return f"{word}{several} {', '.join(map(str, values[:_NAMED]))}{more}"


def _keep(ops: Ops, selection: Selection) -> Kept:
    attribution = ops.attribution
    trace = attribution.trace
    process = trace["ranges"]["process"].fill_null(NONE).to_numpy()
    kept = attribution.is_op.copy()
    executed = (attribution.kernels, attribution.memops)
    flags = tuple(np.ones(len(trace[name]), bool) for name in ("kernels", "memops"))
    is_step, number = _steps(attribution)
    processes: frozenset[int] | None = None
    if selection.ranks:
        processes = _processes(trace, selection.ranks)
        for rows in (kept, is_step):
            rows &= np.isin(process, list(processes))
        for name, mine in zip(("kernels", "memops"), flags, strict=True):
            mine &= trace[name]["process"].is_in(list(processes)).fill_null(False).to_numpy()
    if selection.devices:
        _by_device(attribution, selection.devices, kept, flags)
    windows: Spans | None = None
    if selection.steps is not None:
        chosen = _among(number[is_step], selection.steps)
        is_step[is_step] = chosen
        windows = spans_of(trace, np.flatnonzero(is_step), per_process=True)
        rows = np.flatnonzero(kept)
        for part in pieces(len(rows)):
            steps = ops.context.step(*ops.places(rows[part])).fill_null(NONE).to_numpy()
            kept[rows[part]] = _among(steps, selection.steps)
        for mine, launched in zip(flags, executed, strict=True):
            steps = kernel_steps(ops, launched).fill_null(NONE).to_numpy()
            mine &= _among(steps, selection.steps)
    within: Spans | None = None
    for passes, spans in _parts(ops, selection):
        launching = np.zeros(len(kept), bool)
        for launched in executed:
            launching[launched.op[launched.op >= 0]] = True
        fits = np.zeros(len(kept), bool)
        for part in pieces(len(rows := np.flatnonzero(kept | launching))):
            fits[rows[part]] = passes(rows[part])
        kept &= fits
        within = spans if within is None else both(within, spans)
        for mine, launched in zip(flags, executed, strict=True):
            by_call = inside(spans, *called(trace["calls"], launched.call))
            mine &= np.where(launched.op >= 0, at(fits, launched.op, False), by_call)
    if within is not None and windows is not None:
        within = both(within, windows)
    for mine, launched in zip(flags, executed, strict=True):
        of = launched.op[mine]
        kept[of[of >= 0]] = True  # a CUDA graph's kernel may have an op of another step
    owners = ops.costs.cost_owners(np.flatnonzero(kept))
    kept[owners[owners >= 0]] = True
    forward = np.zeros(len(kept), bool)
    theirs = ops.forward_of(np.flatnonzero(kept))
    forward[theirs[theirs >= 0]] = True
    return Kept(
        kept,
        forward & ~kept,
        is_step,
        flags[0],
        flags[1],
        processes,
        selection.devices,
        windows,
        within,
    )


def _steps(attribution: Attribution) -> tuple[Flags, Ints]:
    """Return per range row whether it is a step that ended, and the step's number."""
    meaning = attribution.meaning
    numbers = meaning.each(
        lambda r: NONE if r.role != "step" or r.step is None else r.step, np.int64
    )
    number = numbers[meaning.reading]
    is_step = number >= 0
    if is_step.any():
        attrs = attribution.trace["ranges"]["attrs"]
        is_step &= ~attrs.str.contains(UNCLOSED_MARK, literal=True).fill_null(False).to_numpy()
    return is_step, number


def _among(steps: Ints, wanted: tuple[int | None, int | None]) -> Flags:
    first, last = wanted
    is_chosen: Flags = steps >= (0 if first is None else max(first, 0))
    return is_chosen if last is None else is_chosen & (steps <= last)


def _by_device(
    attribution: Attribution, devices: Sequence[int], kept: Flags, flags: Sequence[Flags]
) -> None:
    """Leave out the work of other devices, and the ops that launched work on other devices only."""
    every, here = np.zeros(len(kept), bool), np.zeros(len(kept), bool)
    executed = (attribution.kernels, attribution.memops)
    for name, mine, launched in zip(("kernels", "memops"), flags, executed, strict=True):
        mine &= attribution.trace[name]["device"].is_in(list(devices)).fill_null(False).to_numpy()
        every[launched.op[launched.op >= 0]] = True
        of = launched.op[mine]
        here[of[of >= 0]] = True
    every |= attribution.above(every)
    here |= attribution.above(here)
    kept &= here | ~every


def _processes(trace: Trace, ranks: Sequence[int]) -> frozenset[int]:
    processes = trace["processes"].filter(pl.col("rank").is_in(list(ranks)))["process"]
    return frozenset(processes.drop_nulls().to_list())


def _parts(ops: Ops, selection: Selection) -> Iterator[tuple[Callable[[Ints], Flags], Spans]]:
    """Yield for each field that selects parts of steps a test of op rows, and the selected times."""
    attribution = ops.attribution
    trace, meaning = attribution.trace, attribution.meaning
    if selection.layers:
        is_layer = meaning.each(lambda reading: reading.role == "layer")
        rows = np.flatnonzero(is_layer[meaning.reading])
        paths = ops.context.layer(*ops.places(rows))
        chosen = _texts_in(paths, selection.layers, _layer_matches)

        def of_layer(some: Ints) -> Flags:
            return _texts_in(ops.layers(some), selection.layers, _layer_matches)

        yield of_layer, spans_of(trace, rows[chosen])
    if selection.ranges:
        fits = [
            is_user_range(reading)
            and any(
                _matches(text, name) or _matches(serving.label(text) or text, name)
                for name in selection.ranges
            )
            for reading, text in zip(meaning.readings, meaning.texts, strict=True)
        ]
        spans = spans_of(trace, np.flatnonzero(np.array(fits, bool)[meaning.reading]))

        def in_range(some: Ints) -> Flags:
            process, thread, time = ops.places(some)
            is_inside = inside(spans, process, thread, time)
            forward = ops.forward_of(some)
            theirs = np.flatnonzero(~is_inside & (forward >= 0))
            # autograd works on its own thread while the user's thread waits inside the range
            thread = ops.places(forward[theirs])[1]
            is_inside[theirs] = inside(spans, process[theirs], thread, time[theirs])
            return is_inside

        yield in_range, spans


def _matches(text: str, name: str) -> bool:
    return text == name or fnmatchcase(text, name)


def _layer_matches(path: str, name: str) -> bool:
    """Return whether the layer or a layer around it is ``name``, a path or a pattern."""
    if _matches(path, name):
        return True
    around = (path[:index] for index, letter in enumerate(path) if letter in "./")
    return any(_matches(outer, name) for outer in around)


def _texts_in(
    column: pl.Series, names: Sequence[str], matches: Callable[[str, str], bool]
) -> Flags:
    """Return whether each text matches any of ``names``; each distinct text is matched once."""
    codes, distinct = compact(column)
    chosen = np.array(
        [text is not None and any(matches(text, name) for name in names) for text in distinct], bool
    )
    is_chosen: Flags = chosen[codes]
    return is_chosen
