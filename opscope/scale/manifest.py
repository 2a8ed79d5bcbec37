"""The ranks of a merged job: expected, read, failed, missing, and duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import polars as pl

#: At most this many missing ranks are listed one by one.
_LISTED: Final = 1000


@dataclass(frozen=True, slots=True)
class Manifest:
    """``expected`` and ``read`` count ranks (or files, if ranks are not known). ``failed``: the files that
    could not be read, and why. ``missing``: the ranks without any file; ``missing_files`` likewise, if
    files were expected by name. ``duplicates``: ranks with several files."""

    expected: int
    read: int
    of: str = "ranks"
    failed: list[dict[str, str]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    missing_files: list[str] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def said(self) -> str:
        """Return in one line how complete the job is: ``997 of 1,000 ranks``."""
        return f"{self.read:,} of {self.expected:,} {self.of}"


def manifest(
    processes: pl.DataFrame,
    files: int,
    failed: Sequence[Mapping[str, str]],
    expected: int | None,
    missing_files: Sequence[str],
) -> Manifest:
    """Return the manifest of a job whose ``processes`` (trace table) come from ``files`` partials.

    ``expected``: how many ranks (or files) there should be; None: the ``world_size`` of the processes, else
    the number of existing ones.
    """
    ranks = processes["rank"].drop_nulls()
    has_ranks = len(ranks) > 0 and len(ranks) == len(processes)
    counts = ranks.value_counts()
    twice = sorted(counts.filter(pl.col("count") > 1)["rank"].to_list())
    sizes = processes["world_size"].drop_nulls()
    world = int(sizes.max()) if len(sizes) and has_ranks else None  # type: ignore[arg-type]
    total = expected if expected is not None else world
    read = ranks.n_unique() if has_ranks else files
    if total is None:
        total = read + len(failed) + len(missing_files)
    missing: list[int] = []
    if has_ranks and total > read:
        missing = sorted(set(range(total)) - set(ranks.to_list()))[:_LISTED]
    return Manifest(
        max(total, read),
        read,
        "ranks" if has_ranks else "files",
        [dict(failure) for failure in failed],
        missing,
        list(missing_files),
        twice,
    )
