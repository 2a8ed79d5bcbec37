"""Compare what a program prints with and without a change: does it differ by more than it varies anyway?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from typing import Final

from opscope.core.question import units

#: The most bytes of a run's output that are compared, from its beginning.
LARGEST: Final = 1 << 20
#: Runs per side that are needed to know what varies from run to run.
_FEWEST: Final = 2
#: Probability that equal programs are said to print something else.
_LEVEL: Final = 0.05
#: Characters of a line that are shown.
_SHOWN: Final = 80


@dataclass(slots=True)
class Output:
    """The lines that a side printed, in order, each with its runs: bit 0 is the first run."""

    lines: dict[str, int] = field(default_factory=dict)
    is_cut: bool = False
    runs: int = 0

    def add(self, file: Path) -> None:
        """Add what a run printed."""
        with file.open("rb") as printed:
            data = printed.read(LARGEST + 1)
        self.is_cut |= len(data) > LARGEST
        for line in data[:LARGEST].decode("utf-8", "replace").splitlines():
            self.lines[line] = self.lines.get(line, 0) | 1 << self.runs
        self.runs += 1


def difference(without: Output, with_change: Output) -> tuple[str | None, str | None]:
    """Return the verdict on the outputs, and a sentence on the first line that differs.

    ``same``: all runs printed the same lines. ``differs``: some lines are in all runs of one side and in none
    of the other, and this is no chance: of all ways to divide the runs in two sides, at most 5 % separate as
    many lines. ``varies``: no line separates the sides in this way, but runs differ. None: not known, because
    there are too few runs, or they print more than is compared.
    """
    before, after = without.runs, with_change.runs
    if min(before, after) < _FEWEST:
        return None, None
    whole, first = (1 << before + after) - 1, (1 << before) - 1
    runs = dict(without.lines)
    for line, mask in with_change.lines.items():
        runs[line] = runs.get(line, 0) | mask << before
    divided: Counter[int] = Counter()  # number of lines for each division of the runs
    for mask in runs.values():
        divided.update({mask} if mask.bit_count() == before else ())
        divided.update({whole ^ mask} if mask.bit_count() == after else ())
    apart = divided[first]
    if not apart:
        if without.is_cut or with_change.is_cut:
            return None, None
        return ("same" if all(mask == whole for mask in runs.values()) else "varies"), None
    as_many = sum(count >= apart for count in divided.values())
    if as_many > _LEVEL * comb(before + after, before):
        return None, None
    shown = [
        f"{side} it {units.visible(line.strip()[:_SHOWN])!r}"
        for side, mine in (("without", first), ("with", whole ^ first))
        for line in [line for line, mask in runs.items() if mask == mine][:1]
    ]
    return "differs", ", ".join(shown)
