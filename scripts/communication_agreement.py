"""Print, for each trace in a folder, what three reports say of its communication, and whether they agree.

    python scripts/communication_agreement.py ../shared/data ../shared/cases > table.md

``by_kind`` adds up the kernels, ``overlap`` and ``communication`` take each moment once, ``communication`` within
the steps. So the three are compared by way of the kernels themselves. Traces without a kernel of a collective are
counted below the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from opscope.core.job.exchanges import communicating
from opscope.core.tables.intervals import clip, merge
from opscope.profile import Profile, load
from opscope.readers.errors import BadInput


@dataclass(frozen=True, slots=True)
class Figures:
    """Times (ns) of communication in a trace: what reports say, and what its kernels come to."""

    kernels: int
    by_kind: int
    overlap: int
    communication: int
    durations: int
    on_devices: int
    in_windows: int

    @property
    def agree(self) -> bool:
        """Whether each report says what the kernels come to."""
        said = (self.by_kind, self.overlap, self.communication)
        return said == (self.durations, self.on_devices, self.in_windows)


def figures(profile: Profile) -> Figures:
    """Return what three reports and the kernels say of the communication on devices."""
    kernels = profile.trace["kernels"].filter(pl.Series(communicating(profile.attribution)))
    rows = profile.communication()
    rows = rows.filter(
        pl.col("process").is_in(profile.trace["kernels"]["process"].unique().implode())
    )
    overlap = profile.overlap().filter(
        pl.col("running_work").str.contains("communication|all three")
    )
    by_kind = profile.totals_by("kind").filter(pl.col("kind") == "communication")
    return Figures(
        len(kernels),
        int(by_kind["device_time"].sum()),
        int(overlap["time"].sum()),
        int(rows["communication_time"].sum()),
        int((kernels["end"] - kernels["start"]).sum()),
        sum(_length(part) for part in kernels.partition_by("process", "device")),
        sum(_in_window(profile, part) for part in kernels.partition_by("process")),
    )


def _length(rows: pl.DataFrame) -> int:
    start, end = merge(rows["start"].to_numpy(), rows["end"].to_numpy())
    return int((end - start).sum())


def _in_window(profile: Profile, rows: pl.DataFrame) -> int:
    """Return how long the kernels of one process ran, each moment once, between its first and its last step."""
    ranges, process = profile.attribution.trace["ranges"], rows["process"][0]
    steps = ranges.filter((pl.col("category") == "step") & (pl.col("process") == process))
    steps = steps.filter(~pl.col("attrs").fill_null("").str.contains("unclosed"))
    spans = merge(rows["start"].to_numpy(), rows["end"].to_numpy())
    if len(steps):
        spans = clip(spans, int(steps["start"].min()), int(steps["end"].max()))
    return int(np.sum(spans[1] - spans[0]))


def traces(folders: list[Path]) -> Iterator[tuple[str, Profile]]:
    """Yield the name and the profile of each file that opens and in which a kernel ran."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.suffix in (".md", ".py", ".sh", ".txt"):
                continue
            try:
                profile = load(path)
            except BadInput:
                continue
            if len(profile.trace["kernels"]):
                yield f"{path.parent.name}/{path.name}", profile


def main(folders: list[Path]) -> int:
    """Print the table; return 1 if a trace disagrees."""
    print("| trace | kernels | `by_kind`, ms | `overlap`, ms | `communication`, ms | agree |")
    print("|---|---|---|---|---|---|")
    without = wrong = 0
    for name, profile in traces(folders):
        found = figures(profile)
        wrong += not found.agree
        if not found.kernels and found.agree:
            without += 1
            continue
        times = " | ".join(
            f"{value / 1e6:,.3f}" for value in (found.by_kind, found.overlap, found.communication)
        )
        print(f"| {name} | {found.kernels:,} | {times} | {'yes' if found.agree else 'no'} |")
    print(f"\nTraces with kernels of which none communicates, in all three: {without}.")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main([Path(folder) for folder in sys.argv[1:]]))
