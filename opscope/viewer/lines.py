"""Time by source line: of the line itself, and of everything that it called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import Frame

if TYPE_CHECKING:
    from .question import Asked


@dataclass(slots=True)
class Line:
    """The time of a line, in ns: of the ops whose innermost line it is, and of everything that it called."""

    self_time: int = 0
    time: int = 0
    calls: int = 0
    #: The op with most of the line's time, and the op's part of it.
    op: str | None = None
    most: int = -1


@dataclass(slots=True)
class Lines:
    """The lines of a profile by file and number; ``whole`` is the time of everything, ``without`` the time
    without a line. ``files``: for each file its own time, the time of all that it called, and its calls."""

    by_file: dict[str, dict[int, Line]] = field(default_factory=dict)
    files: dict[str, Line] = field(default_factory=dict)
    whole: int = 0
    without: int = 0
    #: Whether there was any row, and whether any row's time is known: if no time is known, times of 0 mean
    #: unknown.
    rows: bool = False
    known: bool = False


def frames_of(source: str) -> tuple[Frame, ...]:
    """Return the (file, line) pairs of a ``source`` text, the innermost first; () if it is none."""
    try:
        return parse(f"x() @{source}").frames
    except RangeTextError:
        return ()


def lines_of(asked: Asked) -> Lines:
    """Return the source lines of the selected part."""
    lines: Lines = asked.viewed.tables.get(
        ("lines", asked.selection),
        lambda: added_up(asked.profile.totals_by("source").iter_rows(named=True)),
        lambda found: 200 * sum(map(len, found.by_file.values())) + 1_000,
    )
    return lines


def added_up(rows: Iterable[Mapping[str, Any]]) -> Lines:
    """Return the lines from rows of ``totals_by("source")``, which has a row per stack of lines."""
    made = Lines()
    by_file: dict[str, dict[int, Line]] = defaultdict(dict)
    for row in rows:
        made.rows = True
        made.known |= row["device_time"] is not None
        time, calls = row["device_time"] or 0, row["calls"] or 0
        made.whole += time
        frames = () if row["source"] is None else frames_of(row["source"])
        if not frames:
            made.without += time
            continue
        # a line that calls itself counts the time once
        lines = [by_file[file].setdefault(line, Line()) for file, line in dict.fromkeys(frames)]
        files = [made.files.setdefault(file, Line()) for file in {file: 0 for file, _ in frames}]
        for group in (lines, files):
            group[0].self_time += time
            for one in group:
                one.time += time
                one.calls += calls
                if time > one.most:
                    one.op, one.most = row["op"], time
    made.by_file = dict(by_file)
    return made
