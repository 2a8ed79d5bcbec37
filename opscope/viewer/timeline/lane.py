"""Lanes, the rows of the timeline, with their titles; and the numbered names of slices."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.perf import kinds
from opscope.core.tables.columns import pieces
from opscope.core.tables.intervals import Ints, merge

from .strip import Strip, strips_of

#: Kinds of lanes; ``lines``: where the Python stacks of a thread were sampled.
STEPS, THREAD, PYTHON, CALLS, STREAM = "steps", "thread", "python", "calls", "stream"
LINES: Final = "lines"
#: Categories of slices: kinds of work, then other things that a slice may be.
CATEGORIES: Final = (*kinds.kinds(), "step", "phase", "layer", "range", "python", "graph", "call")
CATEGORY: Final = {name: index for index, name in enumerate(CATEGORIES)}
#: The category of a kernel whose op does not decide it.
UNTOLD: Final = 255


class Names:
    """The distinct names of slices by number; a name keeps its number as long as the timeline exists.
    ``before``: names already numbered in pictures that were made earlier."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._texts = list(before)
        #: Number of earlier names that were added again.
        self._again = 0
        self._before = len(self._texts)
        self._adding = threading.Lock()

    def add(self, texts: Sequence[str | None], otherwise: str) -> int:
        """Add names; return the number of the first. A null name becomes ``otherwise``."""
        with self._adding:
            added = [text or otherwise for text in texts]
            last = self._again + len(added)
            if last <= self._before and self._texts[self._again : last] == added:
                first, self._again = self._again, last
                return first
            first = len(self._texts)
            self._texts.extend(added)
            return first

    def all(self) -> list[str]:
        """Return the names in the order of their numbers."""
        with self._adding:
            return list(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: int) -> str:
        return self._texts[number]

    def equal(self, text: str) -> NDArray[np.bool_]:
        """Return for each name whether it is ``text``."""
        return np.array([text == name for name in list(self._texts)], bool)

    def matching(self, text: str) -> NDArray[np.bool_]:
        """Return for each name whether it contains ``text``, whatever the case."""
        wanted = text.casefold()
        return np.array([wanted in text.casefold() for text in list(self._texts)], bool)


@dataclass(slots=True)
class Slices:
    """Slices of a lane, in any order: times in ns, rows of their table, numbers
    of their names, places in CATEGORIES."""

    start: Ints
    end: Ints
    row: NDArray[np.int32]
    name: NDArray[np.integer[Any]]
    kind: NDArray[np.uint8]

    def at(self, rows: Ints) -> Slices:
        """Return the slices at some positions."""
        columns: tuple[Any, ...] = (self.start, self.end, self.row, self.name, self.kind)
        return Slices(*(column.take(rows) for column in columns))


@dataclass(frozen=True, slots=True)
class About:
    """Description of a lane: its kind, the process, the heading above it, its own title, and the table
    of its rows. ``copies``: from this row on, rows are of ``memops``."""

    kind: str
    process: int
    group: str
    title: str
    table: str
    thread: int | None = None
    device: int | None = None
    stream: int | None = None
    copies: int = 0


@dataclass(slots=True)
class Lane:
    """A lane: strips by depth. ``left``: number of slices too deep for a strip. ``provisional``: kernels have
    the categories of their names, because their ops are not known yet."""

    about: About
    strips: list[Strip]
    left: Slices
    provisional: bool = False

    @classmethod
    def of(cls, about: About, slices: Slices, provisional: bool = False) -> Lane:
        """Return the lane made of these slices."""
        strips, left = strips_of(slices.start, slices.end, slices.row, slices.name, slices.kind)
        return cls(about, strips, slices.at(left), provisional)

    def settled(self, categories: NDArray[np.uint8] | None) -> Lane:
        """Return a stream's lane with the categories of its kernels' ops. ``categories``: one per row of
        the table of kernels, ``UNTOLD`` if the kernel's name decides; None if names decide for all
        kernels."""
        if categories is None:
            return replace(self, provisional=False)

        def kinds(row: NDArray[np.int32], kind: NDArray[np.uint8]) -> NDArray[np.uint8]:
            found: NDArray[np.uint8] = kind.copy()
            for part in pieces(len(row)):
                kernels = np.flatnonzero(row[part] < len(categories))  # the others are copies
                theirs = categories.take(row[part][kernels])
                is_told = theirs != UNTOLD
                found[part][kernels[is_told]] = theirs[is_told]
            return found

        strips = [strip.of_kinds(kinds(strip.row, strip.kind)) for strip in self.strips]
        left = replace(self.left, kind=kinds(self.left.row, self.left.kind))
        return replace(self, strips=strips, left=left, provisional=False)

    @property
    def slices(self) -> int:
        """Number of slices."""
        return sum(map(len, self.strips)) + len(self.left.start)

    @property
    def span(self) -> tuple[int, int]:
        """The first start and the last end, ns; every lane has a slice."""
        spans = [
            (int(strip.start[0]), int(strip.start[-1] + strip.lasted(len(strip) - 1)))
            for strip in self.strips
        ]
        lows, highs = zip(*spans, strict=True)
        deep = [int(self.left.end.max())] if len(self.left.end) else []
        return min(lows), max(*highs, *deep) if deep else max(highs)

    def union(self) -> tuple[Ints, Ints]:
        """Return the times in which at least one slice runs, as disjoint intervals."""
        parts = [(strip.start, strip.start + np.diff(strip.before)) for strip in self.strips]
        parts.append((self.left.start, self.left.end))
        return merge(*(np.concatenate(side) for side in zip(*parts, strict=True)))
