"""``open``: open a line in the user's editor, if ``opscope view --editor CMD`` allows it.

Parameters: ``file`` (as the profile names it) and ``line``. Only a file whose text may be shown is opened.
The command gets file and line as arguments of their own, or in place of ``{file}`` and ``{line}``: no shell
reads them.
"""

from __future__ import annotations

import shlex
import subprocess
import threading
from typing import Any

from opscope.viewer import source_text
from opscope.viewer.lines import lines_of
from opscope.viewer.question import Asked, Question, Unanswered


def command(editor: str, file: str, line: int) -> list[str]:
    """Return the editor's command for a line of a file."""
    words = shlex.split(editor)
    if not any("{file}" in word or "{line}" in word for word in words):
        return [*words, file, str(line)]
    places = {"{file}": file, "{line}": str(line)}
    return [_fill(word, places) for word in words]


def _fill(word: str, places: dict[str, str]) -> str:
    """Put the values into ``word``; braces inside a value are not replaced again."""
    first, *rest = sorted(places, key=lambda name: word.find(name) if name in word else len(word))
    if first not in word:
        return word
    before, _, after = word.partition(first)
    later = {name: places[name] for name in rest}
    return before + places[first] + (_fill(after, later) if later else after)


def answer(asked: Asked) -> dict[str, Any]:
    """Open the line. Raises Unanswered if that is not allowed or fails."""
    viewed = asked.viewed
    if viewed.editor is None:
        raise Unanswered("no editor was given: opscope view FILE --editor CMD")
    file = asked.text("file", most=5_000)
    line = asked.number("line", 1, least=1, most=10**7)
    if file not in lines_of(Asked(viewed, {})).by_file:
        raise Unanswered("the profile names no such file")
    try:
        source = source_text.found(viewed, file)
    except source_text.NotShown as error:
        raise Unanswered(str(error)) from None
    try:
        started = subprocess.Popen(
            command(viewed.editor, str(source.path), line),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Unanswered(f"the editor could not be started: {error}") from None
    threading.Thread(target=started.wait, name="opscope-editor", daemon=True).start()
    return {"file": file, "line": line}


QUESTION = Question(name="open", answer=answer)
