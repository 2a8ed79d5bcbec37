"""``open``: open the files of a run, or list what may be opened."""

from __future__ import annotations

from opscope.agents.answer import Answer, Rows
from opscope.agents.call import TABLE, Argument, Asked, Call
from opscope.agents.parts import as_lines, cannot_tell, units_of
from opscope.core.question.registry import reports

#: The columns of ``summary()`` that describe a run.
_TOLD = (
    "steps",
    "processes",
    "devices",
    "wall_time",
    "window_time",
    "device_time",
    "device_busy",
    "kernels",
)


def answer(asked: Asked) -> Answer:
    """Open the run and say what it has; without files list those that may be opened."""
    files = asked.given.get("files")
    if not files and asked.runs.roots is not None:
        return _list(asked)
    run = asked.runs.open(files, asked.given.get("gpu")) if files else asked.run
    profile = asked.runs.profile(run)
    summary = reports()["summary"]
    frame = summary.frame(profile)
    frame = frame.select(name for name in _TOLD if name in frame.columns)
    hint = asked.hint("diagnose", "what bounds the run", run=str(run.number))
    said = [f"run {run.name}: {profile.trace.origin.get('format') or 'no format'}"]
    return Answer(
        asked.call.name,
        run.name,
        said=said,
        rows=as_lines(frame, units_of(summary.holds.columns), asked.first),
        cannot_tell=cannot_tell(profile),
        next=[hint],
    )


def _list(asked: Asked) -> Answer:
    """Return the files that may be opened."""
    entries = asked.runs.traces()
    said = "files and profiles that may be opened; several files of one job are opened together"
    hints = [asked.hint("open", "the first of them", files=[entries[0][0]])] if entries else []
    return Answer(
        asked.call.name,
        said=[said if entries else "no trace lies in the folders that were named"],
        rows=Rows.of_list(entries, {"file": "text", "format": "text"}, asked.first),
        next=hints,
    )


CALL = Call(
    name="open",
    meaning="Open a trace or profile (several files: the ranks of one job). Without files: list what may be"
    " opened.",
    answer=answer,
    arguments={
        "files": Argument("texts", "files, folders or patterns of one run"),
        "gpu": Argument("text", "name of the device, where the trace does not name it"),
        **TABLE,
    },
    subject="files",
)
