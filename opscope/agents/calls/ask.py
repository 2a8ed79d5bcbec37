"""``ask``: any question or report by its name, with parameters, of a part of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from opscope.agents import calls, catalogue, hints
from opscope.agents.answer import Answer, Hint, Rows
from opscope.agents.call import RUN, SELECTION, TABLE, Argument, Asked, Call
from opscope.agents.parts import as_lines, cannot_tell, units_of
from opscope.core.not_merged import NotMerged
from opscope.core.question.parameters import WrongParameter, parts
from opscope.core.question.suggest import unknown

if TYPE_CHECKING:
    from opscope.core.question.record import Report

#: The question that lists all questions.
LIST: Final = "questions"
#: Questions that are asked by calls of their own.
_OF_CALLS: Final = {"diff": "diff", "what_if": "whatif"}
#: Questions that calls of their own answer better.
_SAME: Final = {"diagnosis": "diagnose", "advice": "advise"}


def answer(asked: Asked) -> Answer:
    """Answer the question in rows, with the unit of each column."""
    name, given = parts(asked.given["question"])
    given = {**given, **asked.given.get("with", {})}
    if name == LIST:
        return _questions(asked, asked.given.get("match", ""))
    if name in _SAME and not given and "columns" not in asked.given:
        return calls.call(_SAME[name]).answer(asked)  # their tables lack the sentences
    if name in _OF_CALLS:
        raise WrongParameter(f"{name} is a call of its own: {_OF_CALLS[name]}")
    report = catalogue.report(name)
    if report is None:
        return _alike(asked, name)
    report = report.asking(given) if given else report
    if asked.given.get("describe"):
        return _describe(asked, report)
    return _rows_of(asked, report)


def _rows_of(asked: Asked, report: Report) -> Answer:
    """Return the rows of a report of what is selected."""
    profile = asked.profile
    lacks = cannot_tell(profile)
    try:
        frame = report.frame(profile)
    except NotMerged as error:
        return Answer(asked.call.name, asked.run.name, cannot_tell=[str(error)])
    units = units_of(report.holds.columns)
    if frame.is_empty():
        return Answer(asked.call.name, asked.run.name, said=[report.no_rows], cannot_tell=lacks)
    if report.single and "columns" not in asked.given:
        return Answer(
            asked.call.name, asked.run.name, rows=as_lines(frame, units, asked.first),
            unknown=_unknown(frame), cannot_tell=lacks,
        )  # fmt: skip
    table = _choose(frame, report, asked.given)
    unknown_columns = _unknown(table)
    rows = Rows.of(table.drop(unknown_columns), units, asked.first)
    said = [report.heading] if len(table) else [f"no row has {asked.given.get('match')!r}"]
    return Answer(
        asked.call.name, asked.run.name, said=said, rows=rows, unknown=unknown_columns,
        cannot_tell=lacks, next=hints.source_of(asked, frame),
    )  # fmt: skip


def _unknown(frame: pl.DataFrame) -> list[str]:
    """Return the columns in which no row has a value."""
    return [name for name in frame.columns if len(frame) and frame[name].null_count() == len(frame)]


def _choose(frame: pl.DataFrame, report: Report, given: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows that match, in the order and with the columns that are asked for."""
    if "match" in given:
        texts = [
            name for name in frame.columns if frame.schema[name] in (pl.String, pl.Categorical)
        ]
        wanted = given["match"].lower()
        has = [pl.col(name).cast(pl.String).str.to_lowercase().str.contains(wanted, literal=True)
               .fill_null(False) for name in texts]  # fmt: skip
        frame = frame.filter(pl.any_horizontal(has)) if has else frame.clear()
    if "sort" in given:
        _refuse_unknown(frame, given["sort"])
        number = frame.schema[given["sort"]].is_numeric()
        frame = frame.sort(given["sort"], descending=number, nulls_last=True, maintain_order=True)
    wanted_columns = given.get("columns", [])
    if wanted_columns == ["all"]:
        return frame
    for name in wanted_columns:
        _refuse_unknown(frame, name)
    names = wanted_columns or [name for name in report.keys if name in frame.columns]
    return frame.select(names) if names else frame


def _refuse_unknown(frame: pl.DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise WrongParameter(unknown("column", name, frame.columns))


def _describe(asked: Asked, report: Report) -> Answer:
    """Return each column of a question with its unit and meaning, and its parameters."""
    rows: list[tuple[str, str, str]] = [
        (f"parameter {name}", each.accepts, each.meaning)
        for name, each in report.of.parameters.items()
        if each.textual
    ]
    rows += [(column.name, column.unit, column.meaning) for column in report.holds.columns]
    columns = {"column": "text", "unit": "text", "meaning": "text"}
    said = [f"{report.name}: {report.holds.row}"]
    ask = Hint("ask", {name: value for name, value in asked.given.items() if name != "describe"})
    return Answer(asked.call.name, said=said, rows=Rows.of_list(rows, columns, asked.first),
                  next=[replace(ask, why="its rows")])  # fmt: skip


def _questions(asked: Asked, words: str) -> Answer:
    """Return all questions; with words, those that are similar, if there are any."""
    rows = catalogue.search(words) if words else catalogue.entries()
    return Answer(
        asked.call.name,
        said=["questions by name; describe=yes gives the columns of one"],
        rows=Rows.of_list(rows, {"question": "text", "a row is": "text"}, asked.first),
    )


def _alike(asked: Asked, name: str) -> Answer:
    """Return the questions that share words with an unknown name, in their names or rows."""
    rows = catalogue.search(name)
    judges = catalogue.detectors(name)[:2]
    changes = catalogue.asks_for_changes(name)
    if not rows and not judges and not changes:
        raise WrongParameter(unknown("question", name[:80], catalogue.names()))
    alike = [asked.hint("ask", row, question=each) for each, row in rows[:5]]
    alike += [asked.hint("advise", "whether it is a finding", detectors=[each]) for each in judges]
    if changes:
        alike.insert(0, asked.hint("diff", "what changed to another run", other="FILE"))
    alike.append(asked.hint("diagnose", "what bounds the run"))
    return Answer(
        asked.call.name,
        cannot_tell=[f"no question is called {name!r}; similar ones follow"],
        next=alike,
    )


CALL = Call(
    name="ask",
    meaning="Any question about a run, in rows: op_totals, kernel, steps, idle_ops, memory, stragglers …"
    " question='questions' lists all of them (match=WORD: those about it).",
    answer=answer,
    arguments={
        "question": Argument("text", "its name"),
        "run": RUN,
        "with": Argument("fields", "the question's parameters"),
        "match": Argument("text", "only rows with this text"),
        "columns": Argument("texts", "these columns, or all"),
        "sort": Argument("text", "by this column, largest first"),
        "describe": Argument("text", "yes: columns with units and meanings, and parameters"),
        **SELECTION,
        **TABLE,
    },
    subject="question",
    needs=("question",),
)
