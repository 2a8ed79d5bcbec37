"""An answer as lines for people, with its hints as commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opscope.core.question import forms, units
from opscope.core.question.column import Column


def lines(fields: Mapping[str, Any], command: Callable[[Mapping[str, Any]], str]) -> Iterator[str]:
    """Yield the lines of an answer's JSON; ``command`` writes a hint as a command line."""
    if "verdict" in fields:
        yield f"verdict: {fields['verdict']}"
    yield from fields.get("said", ())
    if "try" in fields:
        yield f"try: {fields['try']}"
    if fields.get("rows"):
        yield from _table(fields["columns"], fields["rows"])
        yield f"({fields['shown']})"
    for name in ("unknown", "cannot_tell"):
        if name in fields:
            yield f"{name.replace('_', ' ')}: {'; '.join(fields[name])}"
    for hint in fields.get("next", ()):
        yield f"next: {command(hint)}  # {hint.get('why', '')}"
    if "rest" in fields:
        yield f"rest: the same with --set from={fields['rest']['from']}"


def _table(columns: Mapping[str, str], rows: list[list[Any]]) -> Iterator[str]:
    """Yield a line for the headings and one for each row, numbers in units that people read."""
    shown = forms.columns(list(columns), [Column(name, unit, "") for name, unit in columns.items()])
    cells = [[column.title for column in shown]]
    cells += [
        [column.show(value) for column, value in zip(shown, row, strict=True)] for row in rows
    ]
    widths = [max(map(len, each)) for each in zip(*cells, strict=True)]
    for row in cells:
        texts = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(map(units.visible, texts)).rstrip()
