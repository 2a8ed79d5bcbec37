"""``source``: the program's text around a line, with the time of each line."""

from __future__ import annotations

from typing import Final

from opscope.agents import hints
from opscope.agents.answer import Answer, Rows
from opscope.agents.call import RUN, TABLE, Argument, Asked, Call
from opscope.core.question.parameters import WrongParameter
from opscope.core.redaction import redact_source
from opscope.viewer import source_text
from opscope.viewer.lines import Lines, added_up

#: The number of lines shown before and after the requested line.
_AROUND: Final = 8
_COLUMNS: Final = {
    "line": "number",
    "text": "text",
    "self_time": "ns",
    "time": "ns",
    "calls": "count",
}
_LINES: Final = {"line": "number", "self_time": "ns", "time": "ns", "calls": "count", "op": "text"}


def answer(asked: Asked) -> Answer:
    """Show the lines around the requested line; if their text may not be shown, the lines that took
    time."""
    file, _, number = asked.given["at"].rpartition(":")
    if not file or not number.isdecimal() or len(number) > 9:
        raise WrongParameter("source: at is FILE:LINE, such as train.py:42, as answers name it")
    lines = added_up(asked.profile.totals_by("source").iter_rows(named=True))
    if file not in lines.by_file:
        return Answer(
            asked.call.name, asked.run.name, cannot_tell=[f"nothing was called from {file}"]
        )
    try:
        shown = hints.source_file(asked, file)
    except source_text.NotShown as error:
        rows = Rows.of_list(_lines_by_time(lines, file), _LINES, asked.first)
        lacks = [f"the text of {file}: {error}"]
        return Answer(asked.call.name, asked.run.name, rows=rows, cannot_tell=lacks)
    text, secrets = redact_source(shown.text)
    notes = [shown.note] if shown.note else []
    notes += [f"secrets in this text that are hidden: {sum(secrets.values())}"] if secrets else []
    rows = Rows.of_list(_around(lines, file, int(number), text), _COLUMNS, asked.first)
    return Answer(
        asked.call.name,
        asked.run.name,
        where={"source": asked.given["at"]},
        rows=rows,
        cannot_tell=notes,
    )


def _lines_by_time(lines: Lines, file: str) -> list[tuple[object, ...]]:
    """Return the lines of a file that called ops, those with most time first."""
    by_time = sorted(lines.by_file[file].items(), key=lambda item: -item[1].time)
    return [(number, line.self_time, line.time, line.calls, line.op) for number, line in by_time]


def _around(lines: Lines, file: str, number: int, text: str) -> list[tuple[object, ...]]:
    """Return the lines around ``number``, with their text and the time of the ops called there."""
    texts = text.split("\n")
    rows: list[tuple[object, ...]] = []
    for at in range(max(1, number - _AROUND), min(len(texts), number + _AROUND) + 1):
        line = lines.by_file[file].get(at)
        took = (None, None, None) if line is None else (line.self_time, line.time, line.calls)
        rows.append((at, texts[at - 1], *took))
    return rows


CALL = Call(
    name="source",
    meaning="The program's lines around FILE:LINE with the time of each, where its folder may be shown.",
    answer=answer,
    arguments={"at": Argument("text", "FILE:LINE as answers name it"), "run": RUN, **TABLE},
    subject="at",
    needs=("at",),
)
