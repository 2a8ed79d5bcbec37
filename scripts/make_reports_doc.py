"""Write the tables of docs/reports.md. Usage: python scripts/make_reports_doc.py [--check]"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from opscope.frames import WORDS, Column
from opscope.reports.registry import divisions, reports

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reports.md"
#: What stands between the marks of a table.
BETWEEN = re.compile(r"(<!-- ([\w ]+): written by [\w./]+ -->\n).*?(<!-- end -->)", re.DOTALL)


def all_reports() -> str:
    """A row per report: its name, what its rows are, how else it is asked for."""
    words = {report.name: word for word, report in divisions().items()}
    lines = ["| report | rows | also | |\n|---|---|---|---|\n"]
    for report in reports().values():
        also = [f"`--by {words[report.name]}`"] if report.name in words else []
        also += [f"`{alias}`" for alias in report.aliases]
        marks = [
            text
            for text, holds in (("first", report.first), ("on request", not report.written))
            if holds
        ]
        cells = (f"`{report.name}`", report.holds.row, ", ".join(also), ", ".join(marks))
        lines.append(f"| {' | '.join(map(escaped, cells))} |\n")
    return "".join(lines)


def all_columns() -> str:
    """A row per column and meaning, in the order of the reports: its unit, its meaning, where it is so."""
    found: dict[str, dict[Column, list[str]]] = {}
    for report in reports().values():
        for column in report.holds.columns:
            found.setdefault(column.name, {}).setdefault(column, []).append(report.name)
    lines = ["| column | unit | meaning |\n|---|---|---|\n"]
    for name, meanings in found.items():
        for column in sorted(meanings, key=lambda one: one != WORDS.get(name)):
            usual = column == WORDS.get(name) or len(meanings) == 1
            where = "" if usual else f"{listed(meanings[column])}: "
            cells = (f"`{name}`", column.unit, where + column.meaning)
            lines.append(f"| {' | '.join(map(escaped, cells))} |\n")
    return "".join(lines)


def columns_of_reports() -> str:
    """A row per report: its columns in their order."""
    lines = ["| report | columns |\n|---|---|\n"]
    for report in reports().values():
        names = ", ".join(column.name for column in report.holds.columns)
        lines.append(f"| `{report.name}` | {names} |\n")
    return "".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "reports": all_reports,
    "columns": all_columns,
    "columns of each report": columns_of_reports,
}


def listed(names: list[str]) -> str:
    """The names as code, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def escaped(cell: str) -> str:
    """The text as a table's cell may hold it."""
    return cell.replace("|", "\\|")


def page(text: str) -> str:
    """The page ``text`` with its tables as the reports are now; what stands around them stays."""
    return BETWEEN.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> int:
    """Write the page, or with ``--check`` say whether it is what the reports say."""
    before = PAGE.read_text("utf-8")
    text = page(before)
    if "--check" in sys.argv[1:]:
        same = text == before
        print("up to date" if same else f"{PAGE} is not: run scripts/make_reports_doc.py")
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
