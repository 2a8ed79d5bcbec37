"""``source``: the files that ops were called from, with their time; with ``file``, its lines and its text.

The answers are ``SourceFiles`` and ``SourceText`` of ``web/src/source_files.ts``. Parameters: ``file`` (as
the profile names it), ``steps``, ``device``, ``rank``. Text is given only where ``source_text`` allows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opscope.core.question.registry import reports
from opscope.core.redaction import redact_source
from opscope.viewer import source_text
from opscope.viewer.lines import Line, Lines, lines_of
from opscope.viewer.question import Asked, Question, Unanswered

if TYPE_CHECKING:
    from opscope.viewer.viewed import Viewed


#: Number of files that are looked up on disk when all are listed.
_LOOKED_AT: Final = 500
#: Files whose lines a single file holds, those with most of the time.
_FILES: Final = 50
NOT_ASKED: Final = "this file holds no source text; --embed-source puts it in"
_NO_ROOM: Final = "this file has no room for its text; opscope view shows it"
_BEYOND: Final = (
    f"this file holds the {_FILES} source files with most of the time; opscope view shows it"
)
_UNSEEN: Final = "not looked for yet: there are many files"


def answer(asked: Asked) -> dict[str, Any]:
    """Return the files, or one file. Raises Unanswered for a file that the profile does not name."""
    lines = lines_of(asked)
    file = asked.text("file", "", most=5_000)
    if not file:
        return _files(asked, lines)
    if file not in lines.by_file:
        raise Unanswered("nothing that is selected was called from a file of this name")
    return _one(asked, lines, file)


def _files(asked: Asked, lines: Lines) -> dict[str, Any]:
    files = []
    for index, file in enumerate(_in_order(lines)):
        whole = lines.files[file]
        files.append(
            {
                "file": file,
                "lines": len(lines.by_file[file]),
                "self_time": whole.self_time if lines.known else None,
                "time": whole.time if lines.known else None,
                "calls": whole.calls,
                "share": whole.time / lines.whole if lines.whole else None,
                "reason": _why_not(asked.viewed, file) if index < _LOOKED_AT else _UNSEEN,
            }
        )
    empty = None
    if not files:
        empty = "the profile names no source lines" if lines.rows else reports()["by_source"].empty
    return {
        "files": files,
        "whole": lines.whole if lines.known else None,
        "without": lines.without if lines.known else None,
        "empty": empty,
        "editor": asked.viewed.editor is not None,
    }


def _one(asked: Asked, found: Lines, file: str) -> dict[str, Any]:
    lines: list[tuple[int, Line]] = sorted(found.by_file[file].items())
    text, reason, note = None, None, None
    try:
        shown = source_text.found(asked.viewed, file)
        text, note = shown.text, shown.note
    except source_text.NotShown as error:
        reason = str(error)
    return {
        "file": file,
        "line": [number for number, _ in lines],
        "self_time": [line.self_time if found.known else None for _, line in lines],
        "time": [line.time if found.known else None for _, line in lines],
        "calls": [line.calls for _, line in lines],
        "op": [line.op for _, line in lines],
        "whole": found.whole if found.known else None,
        "text": text,
        "reason": reason,
        "note": note,
    }


def _why_not(viewed: Viewed, file: str) -> str | None:
    reason: str | None = viewed.tables.get(("shown", file), lambda: (_reason(viewed, file),))[0]
    return reason


def _reason(viewed: Viewed, file: str) -> str | None:
    try:
        source_text.found(viewed, file)
    except source_text.NotShown as error:
        return str(error)
    return None


def _in_order(lines: Lines) -> list[str]:
    """Return the files, those with most time first."""
    return sorted(lines.files, key=lambda file: (-lines.files[file].time, file))


def held(viewed: Viewed, room: int | None) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return parameters and answers that a single file holds: the list, and the files with most of the time.

    ``room``: characters of source text in all; None puts no text in, as nobody asked. Each file without text
    says why, here and in the list. Secrets in the text are hidden, and counted in ``viewed.secrets``.
    """
    asked = Asked(viewed, {})
    lines = lines_of(asked)
    single = {}
    for file in _in_order(lines)[:_FILES]:
        source = _one(asked, lines, file)
        if room is None:
            source |= {"text": None, "note": None, "reason": NOT_ASKED}
        elif source["text"] is not None and len(source["text"]) > room:
            source |= {"text": None, "note": None, "reason": _NO_ROOM}
        elif source["text"] is not None:
            room -= len(source["text"])
            source["text"], counts = redact_source(source["text"])
            if counts:
                viewed.secrets[file] = counts
                notes = [
                    source["note"],
                    f"secrets in this text that are hidden: {sum(counts.values())}",
                ]
                source["note"] = "; ".join(note for note in notes if note)
        single[file] = source
    listing = _files(asked, lines)
    for file_row in listing["files"]:
        file_row["reason"] = (
            single[file_row["file"]]["reason"] if file_row["file"] in single else _BEYOND
        )
    listing["editor"] = False
    return [({}, listing), *(({"file": file}, made) for file, made in single.items())]


QUESTION = Question(name="source", answer=answer)
