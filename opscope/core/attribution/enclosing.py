"""Find what encloses an op: its layer, step, phase, user range and source line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import RUNTIME, Attribution
from opscope.core.code_files import LIMIT, kept_frames
from opscope.core.dialects import LAYER, Reading
from opscope.core.once import lock_of
from opscope.core.schema import Frame
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import gather, pairs, pieces, spread
from opscope.core.tables.intervals import NONE, Ints, Nest, depth, merge, nest
from opscope.core.tables.lanes import lanes_of
from opscope.core.tables.mapped import let_go

#: Number of frames of a call stack that a source column shows, innermost first.
FRAMES_SHOWN: Final = LIMIT + 1


def source_text(frames: Sequence[Frame]) -> str:
    """Return the innermost frames as text: ``train.py:42 < main.py:7``."""
    return " < ".join(f"{file}:{line}" for file, line in frames[:FRAMES_SHOWN])


@dataclass(slots=True)
class _Enclosing:
    """The ranges of one kind by (process, thread), with the text of each."""

    nests: dict[
        tuple[int, int], tuple[Nest, NDArray[np.int32]]
    ]  # per thread, the place of each interval's text in the texts
    texts: list[str]
    #: For layers: whether each interval is a call of the layer, not an op that only names its layer.
    called: dict[tuple[int, int], NDArray[np.bool_]] = field(default_factory=dict)


class Context:
    """Finds what encloses the events of a trace. Each kind is prepared at its first use."""

    def __init__(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._ranges = attribution.trace["ranges"]
        self._prepared: dict[str, _Enclosing] = {}
        self._words: dict[str, pl.Series] = {}

    def layer(self, process: Ints, thread: Ints, time: Ints) -> pl.Series:
        """Return the module path open at each time (ns), Categorical; null outside any layer."""
        return self._find("layer", process, thread, time)

    def user(self, process: Ints, thread: Ints, time: Ints) -> pl.Series:
        """Return the innermost user range open at each time (ns), Categorical; null outside any."""
        return self._find("user", process, thread, time)

    def phase(self, process: Ints, thread: Ints, time: Ints) -> pl.Series:
        """Return the phase (``input``, ``forward``, ``backward``, ``optimizer`` …) open at each time (ns)."""
        return self._find("phase", process, thread, time)

    def source(self, process: Ints, thread: Ints, time: Ints) -> pl.Series:
        """Return the innermost user frames of the call stack at each time (ns), if the trace has stacks."""
        return self._find("source", process, thread, time)

    def step(self, process: Ints, thread: Ints, time: Ints) -> pl.Series:
        """Return the number of the step open at each time (ns), Int64.

        A step counts for the whole process: it may be marked on one thread while autograd and the data loader
        work on others. A step without an end (``marked_steps``) is left out: after the last end of an
        optimizer, such a step stays open no matter what follows.
        """
        number: pl.Series = self._find("step", process, np.zeros_like(thread), time)
        number = number.cast(pl.String).cast(pl.Int64)
        return number

    def numbers(self, kind: str, process: Ints, thread: Ints, time: Ints) -> NDArray[np.int32]:
        """Return a number for the range open at each time (ns), -1 if none is; equal texts have equal
        numbers."""
        return _numbers(self._enclosing(kind), process, thread, time)

    def layers(self) -> Iterator[tuple[Nest, list[str], NDArray[np.int32], NDArray[np.bool_]]]:
        """Yield for each thread the nest of its ranges that name a layer, all texts, the place of each
        range's text, and whether the range is a call of the layer. The last two are in the order of the
        nest's rows.."""
        enclosing = self._enclosing("layer")
        for key, (tree, value) in enclosing.nests.items():
            yield tree, enclosing.texts, value, enclosing.called[key]

    def named(
        self, names: Sequence[str | None], join: Callable[[str, str], str] | None = None
    ) -> Callable[[Ints, Ints, Ints], pl.Series]:
        """Return a function of process, thread and time (ns) that gives the innermost range with a name.

        ``names``: the name of each reading, None for ranges that do not count. ``join`` combines the names of
        a range and of the ranges around it, outermost first. The result is Categorical, null outside any.
        """
        prepared = self._prepare("named", list(names), join)

        def find(process: Ints, thread: Ints, time: Ints) -> pl.Series:
            return spread("named", prepared.texts, _numbers(prepared, process, thread, time))

        return find

    def many(self, kind: str) -> int:
        """Return an upper bound of the ``numbers`` of this kind: all are smaller."""
        return len(self._enclosing(kind).texts)

    def texts(self, kind: str) -> list[str]:
        """Return the text of each of this kind's ``numbers``."""
        return self._enclosing(kind).texts

    def outermost_layers(self) -> dict[tuple[int, int], tuple[Ints, Ints]]:
        """Return per process and thread the times of layer calls: disjoint intervals in order."""
        enclosing = self._enclosing("layer")
        calls = {}
        for key, (tree, _) in enclosing.nests.items():
            own = enclosing.called[key][tree.order]
            calls[key] = merge(tree.start[own], tree.end[own])
        return calls

    def _find(self, kind: str, process: Ints, thread: Ints, time: Ints) -> pl.Series:
        numbers = self.numbers(kind, process, thread, time)
        if kind not in self._words:  # once: kernels are described in pieces
            texts = pl.Series(kind, self._enclosing(kind).texts, pl.String)
            self._words[kind] = texts.cast(pl.Categorical)
        return gather(self._words[kind], numbers)

    def _enclosing(self, kind: str) -> _Enclosing:
        with lock_of(self, kind):  # saving a profile describes kernels on a separate thread
            if kind not in self._prepared:
                meaning = self._attribution.meaning
                names = meaning.each(_TEXT[kind], object)
                unnamed = np.flatnonzero(names == "")
                names[unnamed] = [meaning.texts[code] for code in unnamed.tolist()]
                self._prepared[kind] = self._prepare(kind, names.tolist())
        return self._prepared[kind]

    def _prepare(
        self, kind: str, names: list[str | None], join: Callable[[str, str], str] | None = None
    ) -> _Enclosing:
        meaning = self._attribution.meaning
        wanted = np.array([name is not None for name in names], bool)
        nests: dict[tuple[int, int], tuple[Nest, NDArray[np.int32]]] = {}
        if not wanted.any():
            return _Enclosing(nests, [])
        parts: list[list[NDArray[Any]]] = [[] for _ in range(5)]
        for part in pieces(len(meaning.reading)):
            rows = part.start + np.flatnonzero(wanted[meaning.reading[part]])
            if len(rows) and kind in _LEFT_OUT:
                rows = rows[~_LEFT_OUT[kind](self._ranges, rows)]
            parts[0].append(meaning.reading[rows])
            for column, name in zip(parts[1:], ("process", "thread", "start", "end"), strict=True):
                column.append(self._ranges[name].gather(rows).fill_null(NONE).to_numpy())
        reading, process, thread, start, end = map(np.concatenate, parts)
        del parts
        texts = [name or "" for name in names]
        if kind == "step":
            thread = np.zeros_like(thread)
        own_call = meaning.each(lambda reading: reading.role == "layer")
        called: dict[tuple[int, int], NDArray[np.bool_]] = {}
        for key, here in lanes_of(process, thread).rows(np.ones(len(reading), bool)):
            tree = nest(start[here], end[here])
            value = reading[here]
            if kind == "layer":
                called[key] = own_call[value]
            if join is not None:
                _chain(tree, value, texts, join, False)
            if kind in _CHAINED:
                joiner, alone = _CHAINED[kind]
                _chain(tree, value, texts, joiner(), alone)
            nests[key] = (tree, value)
        let_go()
        if kind == "source":
            texts = [_shown_source(text) for text in texts]
        first: dict[str, int] = {}
        same = np.array(
            [first.setdefault(text, index) for index, text in enumerate(texts)], np.int32
        )
        return _Enclosing(
            {key: (tree, same[of]) for key, (tree, of) in nests.items()}, texts, called
        )


def _internal(ranges: pl.DataFrame, rows: Ints) -> NDArray[np.bool_]:
    """Return which rows are a framework's runtime internals, which are not the user's."""
    flags: NDArray[np.bool_] = (
        (ranges["domain"].gather(rows) == RUNTIME).fill_null(False).to_numpy()
    )
    return flags


def _unclosed(ranges: pl.DataFrame, rows: Ints) -> NDArray[np.bool_]:
    """Return which rows are steps that nothing ended."""
    attrs = ranges.select(pl.col("attrs").gather(rows))["attrs"]
    flags: NDArray[np.bool_] = (
        attrs.str.contains(UNCLOSED_MARK, literal=True).fill_null(False).to_numpy()
    )
    return flags


#: Function that returns the rows of a kind to leave out.
_LEFT_OUT: Final = {"user": _internal, "step": _unclosed}


def _numbers(enclosing: _Enclosing, process: Ints, thread: Ints, time: Ints) -> NDArray[np.int32]:
    """Return the place in the texts of the range open at each time (ns), -1 for none."""
    values_of_rows = np.full(len(time), NONE, np.int32)
    for (number, on), (tree, value) in enclosing.nests.items():
        here = np.flatnonzero((process == number) & (thread == on))
        row = tree.innermost(time[here])
        is_inside = row >= 0
        values_of_rows[here[is_inside]] = value[row[is_inside]]
    return values_of_rows


def _layer(reading: Reading) -> str | None:
    return reading.layer


#: Mark before a function's first line in texts of ``source``, until texts are joined: a call inside the
#: function has the line in the function, which then replaces the first line.
_BEGIN: Final = "\x02"
#: Mark before a text whose last frame is the line of a call in the surrounding function.
_CALLED: Final = "\x03"


def _source(reading: Reading) -> str | None:
    if reading.role != "source":
        return None
    text = source_text(kept_frames(reading.frames))
    if text and len(reading.frames) == 1:
        text = f"{_BEGIN}{text}"
    called = source_text(kept_frames((reading.called_from,))) if reading.called_from else ""
    told = " < ".join(filter(None, (text, called)))
    return f"{_CALLED if called else ''}{told}" or None


def _step(reading: Reading) -> str | None:
    return None if reading.role != "step" or reading.step is None else str(reading.step)


def is_user_range(reading: Reading) -> bool:
    """Return whether it is the user's own range, not a framework's node or phase."""
    return reading.role == "user" and reading.direction is None and reading.key is None


def _phase(reading: Reading) -> str | None:
    """Return the phase that a range marks: "" if the range's text is the phase, None if it marks none."""
    if reading.role not in ("phase", "user"):
        return None
    return reading.direction or ("" if reading.role == "phase" else None)


_TEXT: Final[dict[str, Callable[[Reading], str | None]]] = {
    "layer": _layer,
    "source": _source,
    "step": _step,
    "user": lambda reading: "" if is_user_range(reading) else None,
    "phase": _phase,
}


def _join_source(outer: str, inner: str) -> str:
    """Return the frames of a range with those of the range around it.

    Kineto's ranges hold one frame each. PyProf's markers hold the whole stack: if two begin at the same
    frame, the inner one includes the outer one's frames.
    """
    called, inner, outer = (
        inner.startswith(_CALLED),
        *(text.removeprefix(_CALLED) for text in (inner, outer)),
    )
    frames, around = inner.split(" < "), outer.split(" < ")
    if called and around[0].startswith(_BEGIN):
        return " < ".join([*frames, *around[1:]][: FRAMES_SHOWN + 1])
    if inner == outer or (len(frames) > 1 and frames[-1] == around[-1]):
        return inner
    return " < ".join([*frames, *around][:FRAMES_SHOWN])


def _shown_source(text: str) -> str:
    """Return a joined text of frames for display: without marks, and without equal frames in a row."""
    if _BEGIN not in text and _CALLED not in text:
        return text
    frames = text.replace(_BEGIN, "").replace(_CALLED, "").split(" < ")
    kept = [frame for place, frame in enumerate(frames) if not place or frame != frames[place - 1]]
    return " < ".join(kept[:FRAMES_SHOWN])


def _layer_joiner() -> Callable[[str, str], str]:
    """Return a function that joins a path of layers with the layer inside it.

    A module's path already names the modules around it; Kineto's ``nn.Module: X_0`` and a user's
    ``layer:block1`` name only themselves. A module inside a user's layer continues the path of the
    module around that layer: ``Net``, ``layer:attention``, ``Net.query`` is ``Net.attention.query``.
    """
    modules: dict[str, str] = {}  # joined path with a user's layer → path of its innermost module

    def join(outer: str, inner: str) -> str:
        alone = "nn.Module: "
        if inner.startswith(alone):
            own, mark = inner[len(alone) :], "/"
        elif inner.startswith(LAYER):
            own, mark = inner[len(LAYER) :], "."
            modules[f"{outer}{mark}{own}" if outer else own] = modules.get(outer, outer)
        elif outer in modules:
            around = modules[outer]
            own, mark = inner, "."
            if around and f"{inner}.".startswith(f"{around}."):
                own = inner[len(around) + 1 :]
            if not own:
                return outer
            modules[f"{outer}{mark}{own}"] = inner
        else:
            return inner
        return f"{outer}{mark}{own}" if outer else own

    return join


_CHAINED: Final[dict[str, tuple[Callable[[], Callable[[str, str], str]], bool]]] = {
    "source": (lambda: _join_source, False),
    "layer": (_layer_joiner, True),
}


def _chain(
    tree: Nest,
    value: NDArray[np.int32],
    texts: list[str],
    join: Callable[[str, str], str],
    alone: bool,
) -> None:
    """Join each range's text with the text around it, level by level, once per distinct pair.

    ``alone``: whether the join also gets texts of the outermost level, with "" as the text around them.
    """
    placed = tree.order
    level = depth(tree.parent)
    chain_numbers: dict[tuple[int, int], int] = {}
    for number in range(int(level.max(initial=-1)) + 1):
        at = np.flatnonzero(level == number)
        own = value[placed[at]]
        outer = np.full(len(at), NONE, np.int32)
        if number:
            outer = value[placed[tree.parent[at]]]
        elif not alone:
            continue
        above_each, own_each, inverse = pairs(outer, own)
        joined = np.empty(len(own_each), np.int32)
        for index, key in enumerate(zip(above_each.tolist(), own_each.tolist(), strict=True)):
            above, inner = key
            if key not in chain_numbers:
                texts.append(join(texts[above] if above >= 0 else "", texts[inner]))
                chain_numbers[key] = len(texts) - 1
            joined[index] = chain_numbers[key]
        value[placed[at]] = joined[inverse]
