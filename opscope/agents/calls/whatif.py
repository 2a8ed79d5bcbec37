"""``whatif``: how long the run would take if some work took another time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from opscope.agents.answer import Answer, Rows
from opscope.agents.call import RUN, SELECTION, TABLE, Argument, Asked, Call
from opscope.agents.parts import cannot_tell, units_of
from opscope.core.analysis.critical.critical_table import EMPTY, notes
from opscope.core.analysis.critical.edits import MOST
from opscope.core.analysis.critical.what_if import Change, NothingSelected, factors
from opscope.core.question import units
from opscope.core.question.parameters import WrongParameter
from opscope.core.question.registry import question

_FACTORS = ("copies", "communication", "launches", "host")


def answer(asked: Asked) -> Answer:
    """Replay the trace with the changed times."""
    change = _change(asked.given)
    if change == Change():
        raise WrongParameter(f"whatif: nothing to change: give ops, kernels, {', '.join(_FACTORS)}")
    profile = asked.profile
    record = question("what_if")
    try:
        frame = profile.ask(record, **asdict(change))
    except NothingSelected as error:
        raise WrongParameter(str(error)) from error
    if frame.is_empty():
        return Answer(asked.call.name, asked.run.name, cannot_tell=[EMPTY])
    run = frame.row(0, named=True)
    before, after = units.time(run["wall_time"]), units.time(run["new_wall_time"])
    said = (
        f"the run takes {before}, and would take {after}:"
        f" {units.share(run['saving_share'])} less; the first row is all of it"
    )
    return Answer(
        asked.call.name,
        asked.run.name,
        said=[said],
        rows=Rows.of(frame, units_of(record.frames[0].columns), asked.first),
        cannot_tell=[*cannot_tell(profile), *notes(profile)],
    )


def _change(given: Mapping[str, Any]) -> Change:
    """Return the change that the arguments describe. Raises WrongParameter."""
    others = {name: float(given[name]) for name in _FACTORS if name in given}
    try:
        return Change(factors(given.get("ops", ())), factors(given.get("kernels", ())), **others)
    except ValueError as error:
        raise WrongParameter(f"whatif: {error}") from error


_FACTOR = f"factor from 0 to {MOST:g}: 0 removes it, 0.5 is twice as fast"
CALL = Call(
    name="whatif",
    meaning="How long the run and each step would take if some work were faster, slower or gone: a replay"
    " with all dependencies.",
    answer=answer,
    arguments={
        "run": RUN,
        "ops": Argument("texts", "NAME=FACTOR of ops, such as aten::mm=0.5; * stands for any text"),
        "kernels": Argument("texts", "likewise of kernels and copies"),
        "copies": Argument("number", f"of all copies: {_FACTOR}", 0, MOST),
        "communication": Argument("number", "of all collectives, likewise", 0, MOST),
        "launches": Argument("number", "of launching calls and delays, likewise", 0, MOST),
        "host": Argument("number", "of host time that does not wait, likewise", 0, MOST),
        **SELECTION,
        **TABLE,
    },
    subject="ops",
)
