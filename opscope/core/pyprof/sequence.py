"""PyTorch's sequence numbers of kernels as PyProf gives them: ``seq``, ``altseq`` and ``sub``.

A kernel is launched inside ranges with sequence numbers, one of which is its own. In the forward pass its own
number is the first one that is not less than the previous kernel's number; in the backward pass, the smallest
one. The others are ``altseq``. 0 counts only if there is no other number. ``sub`` counts the kernels of one
op: those with equal numbers and equal names in a row. PyProf takes the previous kernel of the whole file;
here it is the previous one of the launching thread, so that threads do not disturb each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.tables.intervals import NONE, Ints

#: The most levels of ranges around a launch that are examined: real traces have a tenth, hostile ones
#: thousands.
_LEVELS: Final = 64


@dataclass(frozen=True, slots=True)
class Numbers:
    """The sequence numbers around some op rows: those of row ``i``, ascending, are
    ``values[first[i]:first[i + 1]]``."""

    first: Ints
    values: Ints

    @property
    def counts(self) -> Ints:
        """How many numbers each row has."""
        counts: Ints = np.diff(self.first)
        return counts


def numbers_around(attribution: Attribution, rows: Ints) -> Numbers:
    """Return the distinct sequence numbers of op rows (-1: none) and of the ops around them."""
    seq = attribution.meaning.seq.column.fill_null(NONE).to_numpy()
    here, index = rows.copy(), np.arange(len(rows))
    parts: list[tuple[Ints, Ints]] = []
    for _ in range(_LEVELS):
        open_ = here >= 0
        here, index = here[open_], index[open_]
        if not len(here):
            break
        has_number = seq[here] >= 0
        parts.append((index[has_number], seq[here[has_number]]))
        here = attribution.parent[here].astype(np.int64)
    places = np.concatenate([part for part, _ in parts] or [np.empty(0, np.int64)])
    values = np.concatenate([part for _, part in parts] or [np.empty(0, np.int64)])
    order = np.lexsort((values, places))
    places, values = places[order], values[order]
    fresh = np.ones(len(places), bool)
    fresh[1:] = (places[1:] != places[:-1]) | (values[1:] != values[:-1])
    # a 0 beside other numbers belongs to an op without a number
    last = np.ones(len(places), bool)
    last[:-1] = places[1:] != places[:-1]
    fresh &= (values > 0) | last
    places, values = places[fresh], values[fresh]
    first = np.searchsorted(places, np.arange(len(rows) + 1))
    return Numbers(first, values)


def current(numbers: Numbers, of: Ints, backward: NDArray[np.bool_], lane: Ints) -> Ints:
    """Return the number of each kernel, in the order in which they ran; -1 if it has none. ``of``: each
    kernel's position in ``numbers``; ``lane``: its launching thread. If no number around the kernel fits, the
    previous kernel's number is used."""
    result = np.full(len(of), NONE, np.int64)
    numbered = np.flatnonzero(numbers.counts[of] > 0)
    first = numbers.first[of[numbered]]
    last = numbers.first[of[numbered] + 1] - 1
    values = numbers.values
    previous: dict[int, int] = {}
    now: list[int] = []
    # each number depends on the one before it: a loop, 0.4 µs a kernel
    for low, high, least, most, back, thread in zip(
        first.tolist(),
        last.tolist(),
        values[first].tolist(),
        values[last].tolist(),
        backward[numbered].tolist(),
        lane[numbered].tolist(),
        strict=True,
    ):
        before = previous.get(thread, NONE)
        if back:
            number = least
        elif most <= before:
            number = before
        elif least > before:
            number = least
        else:
            number = int(values[low + np.searchsorted(values[low : high + 1], before, "right")])
        previous[thread] = number
        now.append(number)
    result[numbered] = now
    return result


def is_own(numbers: Numbers, of: Ints, number: Ints) -> NDArray[np.bool_]:
    """Return for each kernel whether ``number`` is among the numbers of its own ranges."""
    counts_of_kernels = numbers.counts[of]
    kernel = np.repeat(np.arange(len(of)), counts_of_kernels)
    values = numbers.values[_spans(numbers.first[of], counts_of_kernels)]
    own = np.zeros(len(of), bool)
    own[kernel[values == number[kernel]]] = True
    return own


def others(numbers: Numbers, of: Ints, number: Ints) -> pl.Series:
    """Return the numbers of each kernel except ``number``, as text: ``4,7``; null for none."""
    counts_of_kernels = numbers.counts[of]
    text: pl.Series = pl.Series("altseq", [None], pl.String).new_from_index(0, len(of))
    if not len(numbers.values):
        return text
    only = numbers.values[np.minimum(numbers.first[of], len(numbers.values) - 1)]
    several = np.flatnonzero(
        (counts_of_kernels > 1) | ((counts_of_kernels == 1) & (only != number))
    )
    counts = counts_of_kernels[several]
    kernel = np.repeat(several, counts)
    values = numbers.values[_spans(numbers.first[of[several]], counts)]
    left = values != number[kernel]
    joined = (
        pl.DataFrame({"kernel": kernel[left], "value": values[left]})
        .group_by("kernel", maintain_order=True)
        .agg(pl.col("value").cast(pl.String).str.join(","))
    )
    text = text.scatter(joined["kernel"], joined["value"])
    return text


def alternatives(numbers: Numbers, of: Ints, number: Ints) -> tuple[Ints, Ints]:
    """Return (kernel, number) for every number of a kernel except its own ``number``."""
    counts_of_kernels = numbers.counts[of]
    kernel = np.repeat(np.arange(len(of)), counts_of_kernels)
    values = numbers.values[_spans(numbers.first[of], counts_of_kernels)]
    left = values != number[kernel]
    return kernel[left], values[left]


def repeats(
    number: Ints, name: Ints, lane: Ints, numbered: NDArray[np.bool_], cell: NDArray[np.bool_]
) -> Ints:
    """Return ``sub``: how many kernels directly before each, on its thread, had its number and name. In a
    recurrent ``cell`` that PyTorch runs as several ops, only the names must be equal."""
    sub = np.zeros(len(number), np.int64)
    rows = np.flatnonzero(numbered)
    rows = rows[np.argsort(lane[rows], kind="stable")]
    if not len(rows):
        return sub
    now, before = rows[1:], rows[:-1]
    same = (lane[now] == lane[before]) & (name[now] == name[before])
    same &= (number[now] == number[before]) | cell[now]
    begins = np.concatenate((np.ones(1, bool), ~same))
    index = np.arange(len(rows))
    sub[rows] = index - index[begins][np.cumsum(begins) - 1]
    return sub


def _spans(first: Ints, counts: Ints) -> Ints:
    """Return ``first[i], first[i] + 1, …``, ``counts[i]`` of them, for all rows in one array."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    spans: Ints = np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(first, counts)
    return spans
