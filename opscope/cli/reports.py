"""``opscope reports``: list the reports by subject, or search them by words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from . import common, declared, options

if TYPE_CHECKING:
    from opscope.core.question.layout import Table
    from opscope.core.question.record import Report


@options.spread
def reports(
    words: Annotated[
        list[str] | None,
        declared.Argument(
            metavar="[WORD]...",
            help="Only reports that have all these words in their name, title, rows or columns.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        bool, declared.Option("--json", help="Print a list: name, subject, title, rows.")
    ] = False,
    width: options.Width = None,
) -> None:
    """List the reports by subject, for opscope report FILE --reports NAME: what each shows.

    Words search them: opscope reports memory peak.
    """
    from opscope.core.question.subjects import SUBJECTS

    from .grouped_help import start

    rows = [_row(report) for report in _reports() if _has(report, words or ())]
    if not rows:
        common.fail(f"no report has {' '.join(words or ())!r}; opscope reports lists all")
    if json:
        from json import dumps

        common.emit(dumps(rows, indent=2))
        return
    titles = [title for title in SUBJECTS.values() if any(row["subject"] == title for row in rows)]
    # the subject with most matching report names comes first
    named = [
        row["subject"] for row in rows if any(word.lower() in row["name"] for word in words or ())
    ]
    titles.sort(key=lambda title: -named.count(title))
    room = common.width(width) - max(len(row["name"]) for row in rows) - 2
    rows = [row | {"rows": start(row["rows"], room)} for row in rows] if room > 0 else rows
    common.show([_table(title, rows) for title in titles], width)


def _row(report: Report) -> dict[str, str]:
    from opscope.core.question.subjects import subject

    return {
        "name": report.name,
        "subject": subject(report.name),
        "title": report.title,
        "rows": report.holds.row,
    }


def _table(title: str, rows: list[dict[str, str]]) -> Table:
    from opscope.core.question.layout import Column, Table

    columns = [Column("name", "report"), Column("rows", "what it has", flexible=True, least=40)]
    return Table(title, columns, [row for row in rows if row["subject"] == title], headings=False)


def _reports() -> list[Report]:
    from opscope.core.question.registry import reports as every

    return list(every().values())


def _has(report: Report, words: list[str] | tuple[str, ...]) -> bool:
    """Whether each word is in the description of the report, in any case."""
    text = [report.name, report.title, report.holds.row, *report.aliases, str(report.by or "")]
    text += [f"{column.name} {column.meaning}" for column in report.holds.columns]
    said = " ".join(text).lower().replace("_", " ")
    return all(word.lower().replace("_", " ") in said for word in words)
