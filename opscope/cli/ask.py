"""``opscope ask``: an answer for an agent, as ``opscope mcp`` gives it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from . import common, options

Question = Annotated[
    str,
    typer.Argument(
        metavar="QUESTION",
        help="diagnose, 'advise DETECTOR', 'source FILE:LINE', 'diff OTHER', 'whatif OP=FACTOR', or the name"
        " of a question, which 'questions' lists.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An argument, such as steps=3:8, match=conv, from=20; may be given again.",
        show_default=False,
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option(min=300, max=20_000, help="Size of the answer, in units of four bytes.  [1500]",
                 show_default=False),
]  # fmt: skip
SourceRoot = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder whose .py files may be shown.", show_default=False,
                 exists=True, file_okay=False),
]  # fmt: skip


def _skill(wanted: bool) -> None:
    if wanted:
        from importlib.resources import files

        common.emit((files("opscope.agents") / "SKILL.md").read_text(encoding="utf-8"))
        raise typer.Exit


@options.spread
def ask(
    file: options.Files,
    question: Question,
    set_: Set = None,
    tokens: Tokens = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on a line.")] = False,
    source_root: SourceRoot = None,
    skill: Annotated[
        bool,
        typer.Option(
            "--skill", callback=_skill, is_eager=True, help="Print SKILL.md, for agents, and exit."
        ),
    ] = False,
    *,
    reading: options.Reading,
) -> None:
    """Answer a question in few words, for an agent or a script.

    It has evidence, units, what cannot be told and what to ask next.

    The same as the tools of opscope mcp. An answer has at most 1,500 tokens of four bytes, unless --tokens
    gives more; what it leaves out it says how to get.
    """
    from opscope.agents.answering import reply
    from opscope.agents.runs import Reading, Runs
    from opscope.core.perf.devices.unnamed import UnknownDevice

    name, given = _call(question, set_ or [])
    if tokens is not None:
        given["tokens"] = tokens
    options_of_files = Reading(reading.gpu, reading.model, reading.strict, reading.unrelated)
    runs = Runs(None, source_root, options_of_files)
    try:
        runs.open(file)
    except UnknownDevice as error:
        common.fail(f"--gpu {error}")
    answer = reply(runs, name, given)
    if answer.error:
        common.fail(str(answer.content["error"]))
    if json:
        common.emit(answer.text)
    else:
        from opscope.agents.lines import lines

        command = ["opscope", "ask", *file]
        common.emit("\n".join(lines(answer.content, lambda hint: _command(command, hint))))


def _call(question: str, texts: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the call for a question and its arguments; ends the command if the text is not a question."""
    from opscope.agents import calls

    name, _, subject = question.strip().partition(" ")
    given: dict[str, Any] = {}
    if name not in calls.NAMES:
        name, subject = "ask", question.strip()
    record = calls.call(name)
    if subject.strip():
        if record.subject is None:
            common.fail(
                f"{name} takes nothing behind it, so not {subject!r}; --set NAME=VALUE gives arguments"
            )
        given[record.subject] = _value(record, record.subject, subject.strip())
    for text in texts:
        argument, equals, value = text.partition("=")
        if not equals:
            common.fail(f"--set {text!r} is not NAME=VALUE")
        given[argument] = _value(record, argument, value)
    return name, given


def _value(record: Any, argument: str, value: str) -> Any:
    """Return the value of an argument: a list is split at commas, a record at ``A=B``."""
    kind = record.arguments[argument].kind if argument in record.arguments else "text"
    if kind == "texts":
        return [part for part in value.split(",") if part]
    if kind == "fields":
        pairs = (part.partition("=") for part in value.split(",") if part)
        return {name: each for name, _, each in pairs}
    return value


def _command(command: list[str], hint: Mapping[str, Any]) -> str:
    """Return the command line of a hint."""
    from opscope.agents import calls

    given = dict(hint["arguments"])
    subject = given.pop(calls.call(hint["call"]).subject, None)
    words = [hint["call"]] if hint["call"] != "ask" else []
    words += [",".join(subject) if isinstance(subject, list) else subject] if subject else []
    sets = [word for name, value in given.items() for word in ("--set", f"{name}={_text(value)}")]
    return shlex.join([*command, " ".join(words), *sets])


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
