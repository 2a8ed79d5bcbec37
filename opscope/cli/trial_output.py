"""Compare what a program prints with and without a change: does it differ by more than it varies anyway?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.core.question import units

#: The most bytes of a run's output that are compared, from its beginning.
LARGEST: Final = 1 << 20
#: Runs per side that are needed to know what varies from run to run.
_FEWEST: Final = 2
#: Characters of a line that are shown.
_SHOWN: Final = 80


@dataclass(slots=True)
class Output:
    """The lines that all runs of a side printed, in order, and those that any run printed. None: nothing
    ran."""

    steady: dict[str, None] | None = None
    every: set[str] | None = None
    is_cut: bool = False
    runs: int = 0

    def add(self, file: Path) -> None:
        """Add what a run printed."""
        with file.open("rb") as printed:
            data = printed.read(LARGEST + 1)
        self.runs += 1
        self.is_cut |= len(data) > LARGEST
        lines = dict.fromkeys(data[:LARGEST].decode("utf-8", "replace").splitlines())
        kept = (
            lines if self.steady is None else {line: None for line in self.steady if line in lines}
        )
        self.steady, self.every = kept, (self.every or set()).union(lines)


def difference(without: Output, with_change: Output) -> tuple[str | None, str | None]:
    """Return the verdict on the outputs, and a sentence on the first line that differs.

    ``same``: all runs printed the same lines. ``differs``: a line is in all runs of one side, and
    in none of the other. ``varies``: neither, because runs of one side differ. None: a side ran only once, so
    it is unknown what varies, or it printed more than is compared.
    """
    sides = without, with_change
    steady = without.steady or {}
    if min(without.runs, with_change.runs) < _FEWEST:
        return None, None
    gone, new = (
        next((line for line in one.steady or () if line not in (other.every or ())), None)
        for one, other in (sides, sides[::-1])
    )
    if gone is None and new is None:
        if without.is_cut or with_change.is_cut:
            return None, None
        return ("same" if without.every == with_change.every == set(steady) else "varies"), None
    shown = [
        f"{side} it {units.visible(line.strip()[:_SHOWN])!r}"
        for side, line in (("without", gone), ("with", new))
        if line is not None
    ]
    return "differs", ", ".join(shown)
