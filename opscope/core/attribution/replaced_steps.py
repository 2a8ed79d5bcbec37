"""Replace the steps of an attributed trace: by those of a key node, or by detected steps that are not
certain."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.inferred_steps import with_steps
from opscope.core.dialects import Reading
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE

#: The begin of a note on the source of steps.
NOTE: Final = "steps "


def replaced_steps(
    attribution: Attribution, table: pl.DataFrame, note: str, *, keep: bool = False
) -> Attribution:
    """Return the attribution with the steps of ``table`` (as ``inferred_steps`` returns them) instead of all
    others.

    No row moves: replaced steps stay as rows without a meaning, new ones follow all other rows. ``note``
    gives the new steps' source; it replaces earlier notes on that. ``keep``: whether the other steps stay.
    """
    meaning = attribution.meaning
    readings, texts, reading = meaning.readings, meaning.texts, meaning.reading
    old = np.flatnonzero(meaning.role == ROLE["step"])
    if len(old) and not keep:
        reading = reading.copy()
        reading[old] = len(readings)
        readings, texts = (*readings, Reading("note")), (*texts, "")
    trace, longer = with_steps(
        attribution.trace, replace(meaning, readings=readings, texts=texts, reading=reading), table
    )
    if not keep:
        before = trace["notes"]
        is_note = before["what"].cast(pl.String).str.starts_with(NOTE).fill_null(False)
        trace = trace.replace(notes=before.filter(~is_note))
    trace.note("info", note, len(table))
    count = len(table)
    also = attribution.also_forward
    return replace(
        attribution,
        trace=trace,
        meaning=longer,
        is_op=np.append(attribution.is_op, np.zeros(count, bool)),
        parent=np.append(attribution.parent, np.full(count, NONE, attribution.parent.dtype)),
        also_forward=None if also is None else np.append(also, np.zeros(count, bool)),
        found=None,
    )
