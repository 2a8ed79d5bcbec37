"""``source``: the program's text around a line, with the time of each line."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

from opscope.agents import hints
from opscope.agents.answer import Answer, Rows
from opscope.agents.call import RUN, TABLE, Argument, Asked, Call
from opscope.core.not_merged import NotMerged
from opscope.core.question.parameters import WrongParameter
from opscope.core.redaction import redact_source
from opscope.viewer import source_text
from opscope.viewer.lines import Line, Lines, added_up

#: The number of lines shown before and after the requested line.
_AROUND: Final = 8
_COLUMNS: Final = {
    "line": "number",
    "text": "text",
    "self_time": "ns",
    "time": "ns",
    "calls": "count",
    "outside_ops": "ns",
}
_LINES: Final = {name: unit for name, unit in _COLUMNS.items() if name != "text"} | {"op": "text"}


def answer(asked: Asked) -> Answer:
    """Show the lines around the requested line; if their text may not be shown, the lines that took
    time."""
    file, _, number = asked.given["at"].rpartition(":")
    if not file or not number.isdecimal() or len(number) > 9:
        raise WrongParameter("source: at is FILE:LINE, such as train.py:42, as answers name it")
    lines = added_up(asked.profile.totals_by("source").iter_rows(named=True))
    outside = _outside_ops(asked, file)
    for each in outside:
        lines.by_file.setdefault(file, {}).setdefault(each, Line())
    if file not in lines.by_file:
        lacks = [f"no op was called from {file}, and no time outside ops was seen in it"]
        return Answer(asked.call.name, asked.run.name, cannot_tell=lacks)
    try:
        shown = hints.source_file(asked, file)
    except source_text.NotShown as error:
        rows = Rows.of_list(_lines_by_time(lines, file, outside), _LINES, asked.first)
        lacks = [f"the text of {file}: {error}"]
        return Answer(asked.call.name, asked.run.name, rows=rows, cannot_tell=lacks)
    text, secrets = redact_source(shown.text)
    notes = [shown.note] if shown.note else []
    notes += [f"secrets in this text that are hidden: {sum(secrets.values())}"] if secrets else []
    rows = Rows.of_list(_around(lines, file, int(number), text, outside), _COLUMNS, asked.first)
    return Answer(
        asked.call.name,
        asked.run.name,
        where={"source": asked.given["at"]},
        rows=rows,
        cannot_tell=notes,
    )


def _outside_ops(asked: Asked, file: str) -> Counter[int]:
    """Return the time (ns) outside any op by line of the file; empty where no stacks were sampled."""
    outside: Counter[int] = Counter()
    with suppress(NotMerged):
        for text, time in asked.profile.host_lines().select("line", "time").drop_nulls().rows():
            name, _, number = text.rpartition(":")
            if name == file and number.isdecimal():
                outside[int(number)] += time
    return outside


def _lines_by_time(lines: Lines, file: str, outside: Counter[int]) -> list[tuple[object, ...]]:
    """Return the lines of a file that called ops or took time outside, those with most time first."""
    by_time = sorted(lines.by_file[file].items(), key=lambda item: -item[1].time)
    return [(at, *_times(line), outside.get(at), line.op) for at, line in by_time]


def _around(
    lines: Lines, file: str, number: int, text: str, outside: Counter[int]
) -> list[tuple[object, ...]]:
    """Return the lines around ``number``, with their text, the time of the ops called there, and the time
    outside any op."""
    texts = text.split("\n")
    rows: list[tuple[object, ...]] = []
    for at in range(max(1, number - _AROUND), min(len(texts), number + _AROUND) + 1):
        line = lines.by_file[file].get(at)
        rows.append((at, texts[at - 1], *_times(line), outside.get(at)))
    return rows


def _times(line: Line | None) -> tuple[int | None, ...]:
    return (line.self_time, line.time, line.calls) if line and line.calls else (None,) * 3


CALL = Call(
    name="source",
    meaning="The program's lines around FILE:LINE with the time of each, where its folder may be shown.",
    answer=answer,
    arguments={"at": Argument("text", "FILE:LINE as answers name it"), "run": RUN, **TABLE},
    subject="at",
    needs=("at",),
)
