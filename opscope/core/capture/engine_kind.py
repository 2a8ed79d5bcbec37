"""Mark the step that has begun as one of an inference engine: its kind, requests and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Final, TypeAlias

from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.session import emitter
from opscope.core.schema import ENGINE_KINDS, ENGINE_STEP

#: The emitter whose domain holds marks that represent no work (``schema.CAPTURE_DOMAIN``).
_FRAMEWORK: Final = "capture"
#: The numbers of queries and of keys of each request.
Lengths: TypeAlias = Sequence[tuple[int, int]]


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


def range_name(server: str, prefill: Lengths, decode: Lengths) -> str:
    """Return the name of a step's range with these requests, in vLLM's form, after the server's name."""
    every = sum(queries for queries, _ in (*prefill, *decode))
    return f"{server} execute_{every}_context_{_sums(prefill)}_generation_{_sums(decode)}"


def _sums(requests: Lengths) -> str:
    """Return the number of requests, then Σq, Σk, Σq² and Σq·k."""
    queries, keys = (sum(sizes) for sizes in zip(*requests, strict=True)) if requests else (0, 0)
    squares, pairs = sum(q * q for q, _ in requests), sum(q * k for q, k in requests)
    return f"{len(requests)}(sq{queries}sk{keys}sqsq{squares}sqsk{pairs})"


def mark(text_of_mark: str) -> None:
    """Mark the step of this thread, if anything listens."""
    marks = emitter(_FRAMEWORK)
    if marks.active:
        marks.mark(_interned(marks, text_of_mark))


@lru_cache(maxsize=4_096)
def _interned(marks: Emitter, text_of_mark: str) -> Prepared:
    """Return the mark prepared once, because preparing a text takes tens of µs."""
    return marks.prepare(text_of_mark)
