"""Mark the step that has begun as one of an inference engine: its kind, requests and tokens."""

from __future__ import annotations

from functools import lru_cache
from operator import index
from typing import Final

from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.session import emitter
from opscope.core.schema import ENGINE_KINDS, ENGINE_STEP

#: The emitter whose domain holds marks that stand for nothing that ran (``schema.CAPTURE_DOMAIN``).
_FRAMEWORK: Final = "capture"


def text(kind: str, requests: int | None, new_tokens: int | None, cached_tokens: int | None) -> str:
    """Return the mark's text. Raises ValueError for an unknown kind and for negative counts."""
    if kind not in ENGINE_KINDS:
        raise ValueError(f"kind={kind!r}: choose one of: {', '.join(ENGINE_KINDS)}")
    counts = {"requests": requests, "new_tokens": new_tokens, "cached_tokens": cached_tokens}
    said = []
    for name, count in counts.items():
        if count is not None:
            if index(count) < 0:
                raise ValueError(f"{name}={count}: a count is 0 or more")
            said.append(f" {name}={index(count)}")
    return f"{ENGINE_STEP}{kind}{''.join(said)}"


def mark(text_of_mark: str) -> None:
    """Mark the step of this thread, if anything listens."""
    marks = emitter(_FRAMEWORK)
    if marks.active:
        marks.mark(_interned(marks, text_of_mark))


@lru_cache(maxsize=4_096)
def _interned(marks: Emitter, text_of_mark: str) -> Prepared:
    """Return the mark prepared once, because preparing a text takes tens of µs."""
    return marks.prepare(text_of_mark)
