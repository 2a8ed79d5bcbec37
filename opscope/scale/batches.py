"""Put small traces together, so that a task is about a second of work, and begin with the largest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Bytes that a core reads and attributes in a second: 200 ranks of 0.4 MB of gzip took 24.8 CPU s, and
#: JSON packs to about a tenth.
PACKED: Final = 3_200_000
PLAIN: Final = 30_000_000
_PACKED_NAMES: Final = (".gz", ".zst", ".parquet", ".opscope")
#: What a trace costs however small it is, in seconds.
_EACH: Final = 0.03
#: Seconds of a task.
TASK: Final = 1.0
#: Tasks that each worker gets at least, where there are ranks enough: the last ones end together.
_TURNS: Final = 4


def seconds(source: str, size: int | None) -> float:
    """Return about how long one core reads the trace; a size that is not known counts as a whole task."""
    if size is None:
        return TASK
    return _EACH + size / (PACKED if source.rstrip("/").endswith(_PACKED_NAMES) else PLAIN)


def batches(
    sizes: Mapping[str, int | None], workers: int | None = None, task: float = TASK
) -> list[tuple[str, ...]]:
    """Return the sources in tasks of about ``task`` seconds, the longest first; each is in one of them.

    ``sizes`` are bytes. With ``workers`` known, tasks are shorter where there would be fewer than four for
    each of them.
    """
    costs = {source: seconds(source, size) for source, size in sizes.items()}
    if workers:
        task = min(task, sum(costs.values()) / (workers * _TURNS))
    batches_made: list[tuple[str, ...]] = []
    batch: list[str] = []
    cost = 0.0
    for source in sorted(costs, key=lambda source: -costs[source]):
        if batch and cost + costs[source] > task:
            batches_made.append(tuple(batch))
            batch, cost = [], 0.0
        batch.append(source)
        cost += costs[source]
    return [*batches_made, tuple(batch)] if batch else batches_made
