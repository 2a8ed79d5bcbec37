"""Where steps end if a program has several optimizers: from the order in which the optimizers step.

An optimizer's hook marks the end of a step while the program runs, and cannot know what comes next. So its
marks are wrong where an optimizer steps several times in a row before another does (a critic's five steps,
then one of the generator), and where one trains after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.dialects import Reading
from opscope.core.tables.intervals import NONE, Ints

#: Fewer steps than this do not count as repetition.
LEAST: Final = 3
#: Least share of the steps that must be alike.
ALIKE: Final = 0.9
#: Most optimizers, or functions, that may alternate.
ROUND: Final = 8


def period(signatures: NDArray[np.uint64] | Ints) -> tuple[int, float] | None:
    """Return the period of the signatures and the share of them that repeats with it; None if they do not
    repeat.

    The last signature is ignored (unless there are only LEAST): it may be cut off, and it lacks work from the
    begin of the next step (gradients set to 0).
    """
    signatures = signatures[: max(LEAST, len(signatures) - 1)]
    for round_size in range(1, ROUND + 1):
        if len(signatures) < LEAST * round_size:
            return None
        alike = float((signatures[round_size:] == signatures[:-round_size]).mean())
        if alike >= ALIKE:
            return round_size, alike
    return None


def optimizers(readings: Sequence[Reading], ops: tuple[Ints, Ints], begin: Ints, end: Ints) -> Ints:
    """Return a number per stretch from ``begin`` to ``end`` (ns, ascending), equal for stretches of one
    optimizer: their last ops have the same name, line and shapes. NONE: no op.

    ``ops``: start (ns, ascending) and number of reading of each op.
    """
    start, reading = ops
    last = np.searchsorted(start, end, "left") - 1
    numbers: dict[object, int] = {}
    result = np.full(len(begin), NONE, np.int64)
    for row, at in enumerate(last.tolist()):
        call = readings[reading[at]].call if at >= 0 and start[at] >= begin[row] else None
        if call is not None:
            key = (call.name, call.frames, call.inputs)
            result[row] = numbers.setdefault(key, len(numbers))
    return result


def ends_of_rounds(optimizer: Ints, marked: Ints, batches: Ints) -> Ints | None:
    """Return which of the optimizers' steps end a step of the program, ascending; None if the marks are
    right.

    ``optimizer``: the optimizer's number, for each of its steps, in order. ``marked``: which of these the
    hook took for the end of a step of the program. ``batches``: the number loaded before each step.
    """
    if (optimizer == NONE).any():
        return None
    _, often = np.unique(optimizer, return_counts=True)
    if len(often) < 2:
        return None
    rounds = [tuple(part.tolist()) for part in np.split(optimizer, marked + 1)]
    if not rounds[-1]:
        rounds.pop()
    usual = max(Counter(rounds[:-1]).values(), default=0)
    if usual >= ALIKE * (len(rounds) - 1):
        return None
    last_of_batch = np.flatnonzero(np.diff(batches, append=batches[-1] + 1))
    # the most frequent optimizer steps once per batch
    if len(last_of_batch) >= ALIKE * often.max():
        return last_of_batch
    turns = np.count_nonzero(np.diff(optimizer)) + 1
    # each optimizer trains when the previous one has finished
    if turns == len(np.unique(optimizer)):
        return np.arange(len(optimizer))
    repeats = period(optimizer)
    if repeats is None:
        return None
    size = repeats[0]
    return np.arange(size - 1, len(optimizer), size)
