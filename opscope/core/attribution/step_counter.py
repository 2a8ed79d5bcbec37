"""The names by which a user may give the op that runs once per iteration; and TensorFlow's step counter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import polars as pl

from opscope.core.dialects import Reading
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.intervals import Ints

#: The variable with which sessions and estimators of TensorFlow count iterations.
GLOBAL_STEP: Final = "global_step"
#: Ops with the key in their path that write the counter, best first.
_WRITES: Final = ("AssignAdd", "assign_add", "add", "Assign")
_NAMES: Final = ("op_id", "node", "op_name", "name")


def names(reading: Reading, text: str) -> Iterator[str]:
    """Yield the names by which a range may be given: the op's, its node's, a layer's path, its text."""
    if reading.role != "op":
        yield text
        if reading.layer:
            yield reading.layer
        return
    if reading.key:
        yield reading.key
    if reading.call is None:
        return
    yield reading.call.name
    for param in _NAMES:
        value = reading.call.param(param)
        if isinstance(value, str):
            yield value


def in_path(name: str, key: str) -> bool:
    """Return whether ``key`` is a part of a path such as ``train/global_step/add``."""
    return f"/{key.strip('/')}/" in f"/{name.rstrip(':')}/"


def writer(paths: Iterable[str]) -> str:
    """Return the path of the op that writes the counter; if none seems to, the first path by name."""
    return min(paths, key=_rank)


def _rank(path: str) -> tuple[int, str]:
    last = path.rsplit("/", 1)[-1]
    return next((n for n, word in enumerate(_WRITES) if last.startswith(word)), len(_WRITES)), path


def counter(meaning: Meaning) -> Ints:
    """Return which readings are the op that writes TensorFlow's counter; none if no op writes it."""
    paths: dict[int, str] = {}
    for number, (reading, text) in enumerate(zip(meaning.readings, meaning.texts, strict=True)):
        if reading.role == "op":
            path = next(
                (
                    path_candidate
                    for path_candidate in names(reading, text)
                    if in_path(path_candidate, GLOBAL_STEP)
                ),
                None,
            )
            if path is not None and _rank(path)[0] < len(_WRITES):
                paths[number] = path
    if not paths:
        return np.empty(0, np.int64)
    chosen = writer(paths.values())
    return np.array([number for number, path in paths.items() if path == chosen], np.int64)


def counted(ranges: pl.DataFrame, rows: Ints, begin: int) -> Ints:
    """Return the bounds (ns) of the iterations that the ops ``rows`` end; the first begins at ``begin``."""
    ends = np.unique(ranges["end"].gather(rows).drop_nulls().to_numpy())
    return np.concatenate(([min(begin, int(ends[0]) - 1)], ends)) if len(ends) else ends
