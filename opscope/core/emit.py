"""The emitter: what adapters push and pop, and the sinks that hear it (NVTX, the recorder)."""

from __future__ import annotations

from typing import Protocol


class Prepared(Protocol):
    """A range text prepared once: interned, its NVTX attributes built, its recorder id given."""

    text: str
    category: str


class Emitter(Protocol):
    """One a framework (NVTX domain ``opscope.<framework>``); every method is cheap when nothing listens."""

    domain: str
    #: The first thing a hook looks at: False when no tool is attached and no capture is running.
    active: bool

    def prepare(self, text: str, category: str | None) -> Prepared:
        """The prepared range of a text; the caller keeps it in a cache of its own and reuses it."""

    def push(self, prepared: Prepared, seq: int = -1, fwd_thread: int = 0) -> None:
        """Open a range on this thread. ``seq`` < 0: no sequence number; ``fwd_thread`` is 1-based."""

    def pop(self, complete: Prepared | None = None) -> None:
        """Close the innermost range of this thread.

        ``complete`` is the same range with its outputs, when they were not known at the push: the
        recorder stores it in place of what was pushed; NVTX gets a mark ``-> …`` (category
        ``result``) just before the pop.
        """

    def mark(self, prepared: Prepared) -> None:
        """An instant on this thread (specs, results)."""
