"""End steps from an optimizer's hook, and note in the recording that a hook marks them."""

from __future__ import annotations

from typing import Any

from opscope.core.capture import session
from opscope.core.schema import OPTIMIZER_STEPS

#: The recorder that has the note already.
_noted: Any = None


def next_step() -> int:
    """End the step where the optimizer's step ends; return the number of the next step."""
    note_hook()
    return session.next_step()


def note_hook() -> None:
    """Note in the recording, once, that a hook marks its steps where the optimizer's step ended."""
    global _noted
    recorder = session.recorder()
    if recorder is not _noted:
        _noted = recorder
        if recorder is not None:
            recorder.note("info", OPTIMIZER_STEPS)
