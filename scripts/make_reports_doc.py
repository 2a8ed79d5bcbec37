"""Write the tables of docs/reference/reports.md. Usage: python scripts/make_reports_doc.py [--check]"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from opscope.core.question.column import Column
from opscope.core.question.index import FIRST
from opscope.core.question.registry import divisions, reports
from opscope.core.question.words import WORDS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "reports.md"
#: A generated table with its marks.
BETWEEN = re.compile(r"(<!-- ([\w ]+): written by [\w./]+ -->\n).*?(<!-- end -->)", re.DOTALL)


def all_reports() -> str:
    """A row per report: its name, the meaning of its rows, and its other names."""
    words = {report: word for word, report in divisions().items()}
    lines = ["| report | rows | also | |\n|---|---|---|---|\n"]
    for report in reports().values():
        also = [f"`--by {words[report.name]}`"] if report.name in words else []
        also += [f"`{alias}`" for alias in report.aliases]
        marks = [
            text
            for text, holds in (("first", report.name in FIRST), ("on request", not report.written))
            if holds
        ]
        cells = (f"`{report.name}`", report.holds.row, ", ".join(also), ", ".join(marks))
        lines.append(f"| {' | '.join(map(escaped, cells))} |\n")
    return "".join(lines)


def all_parameters() -> str:
    """A row per report and parameter that a command can give: what it accepts, its default and its meaning."""
    lines = ["| report | parameter | accepts | default | meaning |\n|---|---|---|---|---|\n"]
    for report in reports().values():
        for name, parameter in report.of.parameters.items():
            if not parameter.textual:
                continue
            default = report.of.value(name, report.asked)
            values = default if parameter.several else [] if default is None else [default]
            cells = (
                f"`{report.name}`",
                f"`{name}`",
                parameter.accepts,
                "+".join(map(parameter.written, values)),
                parameter.meaning,
            )
            lines.append(f"| {' | '.join(map(escaped, cells))} |\n")
    return "".join(lines)


def all_columns() -> str:
    """A row per column and meaning, in the order of the reports, with unit and, if special, the reports."""
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
    """A row per report with its columns in order."""
    lines = ["| report | columns |\n|---|---|\n"]
    for report in reports().values():
        names = ", ".join(column.name for column in report.holds.columns)
        lines.append(f"| `{report.name}` | {names} |\n")
    return "".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "reports": all_reports,
    "parameters": all_parameters,
    "columns": all_columns,
    "columns of each report": columns_of_reports,
}


def listed(names: list[str]) -> str:
    """The names in backquotes, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def escaped(cell: str) -> str:
    """The text escaped for a table cell."""
    return cell.replace("|", "\\|")


def page(text: str) -> str:
    """Return the page ``text`` with its tables rewritten from the reports and the rest unchanged."""
    return BETWEEN.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> int:
    """Write the page, or with ``--check`` print whether it is up to date."""
    before = PAGE.read_text("utf-8")
    text = page(before)
    if "--check" in sys.argv[1:]:
        same = text == before
        print(
            "up to date" if same else f"{PAGE} is not up to date: run scripts/make_reports_doc.py"
        )
        return 0 if same else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
