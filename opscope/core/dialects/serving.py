"""Read the names that inference servers give to their steps: prefill, decode, or both at once.

``execute_context_1(888)_generation_16(16)``, ``execute_new_1_cached_16`` (vLLM: requests and tokens of each
kind), ``[Executor] _forward_step 12: 1 ctx reqs, 16 gen reqs`` (TensorRT-LLM), ``step[DECODE bs=16]``. The
numbers differ from step to step; what the names have in common is the kind of step.
"""

from __future__ import annotations

import re
from typing import Final

PREFILL, DECODE, MIXED = "prefill", "decode", "prefill and decode"
_LIMIT: Final = 512
#: A number, or several that are joined: tokens with their squares, or parts.
_NUMBERS: Final = re.compile(r"[0-9]+(?:[_.,/][0-9]+)*")
_FIRST: Final = r"context|ctx|prefill|extend|new"
_THEN: Final = r"generation|gen|decode|cached"
#: How many requests of either kind: the number follows its word, or stands before it.
_COUNTS: Final = tuple(
    (re.compile(form.format(_FIRST)), re.compile(form.format(_THEN)))
    for form in (
        r"(?<![a-z])(?:{})(?:[ _]?re?qs?)?[ _:=]{{1,2}}([0-9]+)",
        r"([0-9]+)[ _](?:{})(?![a-z])",
    )
)
#: Words that stand alone, in names that give no counts.
_WORD: Final = re.compile(r"(?<![a-z])(prefill|extend|decode|mixed)(?![a-z])")
_KINDS: Final = {"prefill": PREFILL, "extend": PREFILL, "decode": DECODE, "mixed": MIXED}


def kind(text: str) -> str | None:
    """Return the kind of a server's step that a range's name says: PREFILL, DECODE, MIXED; else None."""
    if len(text) > _LIMIT or not _NUMBERS.search(text):
        return None
    lower = text.lower()
    for first, then in _COUNTS:
        begun, continued = first.search(lower), then.search(lower)
        if begun and continued:
            some = (int(begun.group(1)) > 0, int(continued.group(1)) > 0)
            return {(True, False): PREFILL, (False, True): DECODE, (True, True): MIXED}.get(some)
    kinds = {_KINDS[word] for word in _WORD.findall(lower)}
    return kinds.pop() if len(kinds) == 1 else None


def pattern(text: str) -> str:
    """Return the name with ``*`` for each of its numbers."""
    return _NUMBERS.sub("*", text)


def label(text: str) -> str | None:
    """Return one name for all steps of a kind that a server names alike; None for other ranges."""
    found = kind(text)
    return None if found is None else f"{found}: {pattern(text)}"
