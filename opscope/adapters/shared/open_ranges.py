"""The ranges that a thread has open, outermost first: ids of models' parts, and names of phases."""

from __future__ import annotations

from typing import Protocol

from opscope.core.capture.emit import Emitter


class Opened(Protocol):
    """The state of a thread with such ranges."""

    open: list[int | str]


def in_layer(state: Opened) -> bool:
    """Whether the thread is inside the call of a model's part."""
    return any(isinstance(entry, int) for entry in reversed(state.open))


def close(emitter: Emitter, state: Opened, entry: int | str) -> None:
    """Close the innermost open range ``entry``, and all ranges that are still open inside it, if it is open.

    An inner range is still open if the code that closes it did not run.
    """
    if entry not in state.open:
        return
    while True:
        last = state.open.pop()
        emitter.pop()
        if last == entry:
            return
