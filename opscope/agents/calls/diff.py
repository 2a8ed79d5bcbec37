"""``diff``: what changed from one run to another."""

from __future__ import annotations

from opscope.agents import hints
from opscope.agents.answer import Answer, Rows
from opscope.agents.call import RUN, SELECTION, TABLE, Argument, Asked, Call
from opscope.agents.parts import cannot_tell, units_of
from opscope.core.question.parameters import WrongParameter
from opscope.core.question.registry import question
from opscope.core.question.suggest import unknown
from opscope.profile import difference as differences
from opscope.reports import difference as shown

#: For some tables, the table whose rows explain their rows.
_DEEPER = {"part": ("cause", "each part by op"), "cause": ("op", "ops by shape and layer")}


def answer(asked: Asked) -> Answer:
    """Say how the step changed and what explains it, and give a table of the difference."""
    by = asked.given.get("by", "part")
    if by not in shown.TITLES:
        raise WrongParameter(unknown("table", by, shown.TITLES))
    base, other = asked.run, asked.runs.run(asked.given["other"])
    if base == other:
        raise WrongParameter("diff: run and other name the same run: give two different ones")
    before, after = (asked.part_of(run) for run in (base, other))
    difference = differences.difference_of(before, after)
    frame = shown.shown(difference, by)
    names = [name for name in shown.SHOWN[by] if name in frame.columns]
    frame = frame.select(names or frame.columns)
    columns = [name for name in names if frame[name].null_count() < len(frame)]
    call = f'diff(other, "{by}")' if by != "part" else "diff(other)"
    documented = next(
        (f for f in question("diff").frames if f.call == call), question("diff").frames[0]
    )
    notes = shown.notes(difference)
    deeper = [
        asked.hint("diff", why, other=asked.given["other"], by=table)
        for table, why in [_DEEPER[by]]
    ] if by in _DEEPER else []  # fmt: skip
    return Answer(
        asked.call.name,
        f"{base.name} -> {other.name}",
        said=[shown.headline(difference), *notes],
        rows=Rows.of(frame.select(columns), units_of(documented.columns), asked.first)
        if columns
        else None,
        cannot_tell=[*dict.fromkeys((*cannot_tell(before), *cannot_tell(after)))],
        next=deeper or hints.source_of(asked, frame),
    )


CALL = Call(
    name="diff",
    meaning="What changed from run to other: times are means per step in ns; a change is called only beyond"
    " the noise of the steps.",
    answer=answer,
    arguments={
        "other": Argument("text", "number or file of the second run"),
        "run": RUN,
        "by": Argument("text", f"the table: {', '.join(shown.TITLES)}; else part"),
        **SELECTION,
        **TABLE,
    },
    subject="other",
    needs=("other",),
)
