"""Group small traces into tasks of about a second of work each, the largest traces first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Bytes that a core reads and attributes per second: 200 ranks of 0.4 MB of gzip took 24.8 CPU s, and gzip
#: packs JSON to about a tenth.
PACKED: Final = 3_200_000
PLAIN: Final = 30_000_000
_PACKED_NAMES: Final = (".gz", ".zst", ".parquet", ".opscope")
#: The fixed cost of a trace of any size, in seconds.
_EACH: Final = 0.03
#: Length of a task in seconds.
TASK: Final = 1.0
#: The least number of tasks for each worker, if there are enough ranks, so that all workers end at about the
#: same time.
_TURNS: Final = 4


def seconds(source: str, size: int | None) -> float:
    """Return about how long one core takes to read the trace; an unknown size counts as a whole task."""
    if size is None:
        return TASK
    return _EACH + size / (PACKED if source.rstrip("/").endswith(_PACKED_NAMES) else PLAIN)


def batches(
    sizes: Mapping[str, int | None], workers: int | None = None, task: float = TASK
) -> list[tuple[str, ...]]:
    """Return the sources in tasks of about ``task`` seconds, the longest first.

    ``sizes`` are in bytes. If ``workers`` is known, tasks are made shorter so that each worker gets at least
    four.
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
