"""What all tests measured, in a few lines on the terminal and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from opscope.core.question.units import counted
from opscope.reports.markdown import code, escape

from . import PREFIX

if TYPE_CHECKING:
    import pytest

#: A test, its outcome, and the properties that opscope noted on it, which are also in JUnit's XML.
Report: TypeAlias = tuple[str, str, list[tuple[str, object]]]
_DIFFERS: Final = ".differs"
_WRITTEN: Final = ".written"
_FASTER: Final = "faster_than"
_MARKS: Final = {"passed": "✅", "failed": "❌", "skipped": "skipped"}


def summarise(
    reports: Sequence[Report], terminal: pytest.TerminalReporter, markdown: str | None
) -> None:
    """Print what was written and what differs; append all to the file ``markdown``."""
    written = [
        str(value) for _, _, pairs in reports for name, value in pairs if name.endswith(_WRITTEN)
    ]
    failing = sum(outcome == "failed" for _, outcome, _ in reports)
    said = [counted(len(reports), "test") + " measured"]
    said += [f"{counted(failing, 'test')} failed"] if failing else []
    said += [f"wrote {', '.join(sorted(set(written)))}"] if written else []
    terminal.write_sep("-", "opscope")
    terminal.write_line("; ".join(said))
    if markdown:
        try:
            with Path(markdown).open("a", encoding="utf-8") as file:
                file.write("\n".join(_lines(reports, failing)) + "\n")
        except OSError as error:
            terminal.write_line(f"opscope: {markdown}: {error.strerror}", red=True)


def _lines(reports: Sequence[Report], failing: int) -> Iterator[str]:
    total = counted(len(reports), "test")
    yield f"### Performance: {f'{failing} of {total} failed' if failing else f'{total} passed'}"
    yield ""
    yield "| test | | counts |"
    yield "|---|---|---|"
    for test, outcome, pairs in reports:
        differs = [str(value) for name, value in pairs if name.endswith(_DIFFERS)]
        ratios = [str(value) for name, value in pairs if name == PREFIX + _FASTER]
        facts = ", ".join(
            f"{name.rpartition('.')[2]} {value}"
            for name, value in pairs
            if not name.endswith((_DIFFERS, _WRITTEN)) and name != PREFIX + _FASTER
        )
        mark = _MARKS.get(outcome, "")
        cells = "<br>".join(map(escape, [*differs, *ratios] or [facts]))
        yield f"| {code(test)} | {mark} | {cells} |"
