"""Read the NVTX ranges in ncu's CSV: one column of ranges that a thread pushed, one of start/end ranges.

A cell has, for each thread, its number and the open ranges from the outermost to the innermost, each in
quotes: ``Domain:Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg``. Names may contain colons and quotes.
"""

from __future__ import annotations

import re
from typing import Final

from .measured import Open

#: The names of the two columns since 2019.
PUSHED: Final = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
STARTED: Final = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
#: ncu's name of NVTX's default domain.
_DEFAULT: Final = "<default domain>"
#: Two quotes end a range if the next range or the next thread's number begins there, or nothing follows.
_QUOTED: Final = re.compile(r'"(.*?)"(?=\s*(?:"|\d+\s+"|$))', re.DOTALL)
_THREAD: Final = re.compile(r'\s*([0-9]{1,18})\s+(?=")')
_TAIL: Final = re.compile(
    r":(none|[a-z]*int\d*|float|double)(?:\s*):([^:]*):(none|argb):([^:]*):"
    r"(none|ascii|unicode|registered):(.*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_STEP: Final = re.compile(r"step -?\d+\Z|step\Z")
_PHASES: Final = ("forward", "backward", "optimizer", "compile", "input")


def pushed(cell: str) -> tuple[Open, ...]:
    """Return the ranges that threads had open, thread by thread."""
    open_ranges: list[Open] = []
    thread: int | None = None
    at = 0
    while at < len(cell):
        number = _THREAD.match(cell, at)
        if number:
            thread, at = int(number.group(1)), number.end()
        quoted = _QUOTED.search(cell, at)
        if quoted is None:
            break
        open_range = _range(quoted.group(1), thread)
        if open_range is not None:
            open_ranges.append(open_range)
        at = quoted.end()
    return tuple(open_ranges)


def started(cell: str) -> tuple[Open, ...]:
    """Return the start/end ranges that were open; the number before each is the range's."""
    return tuple(
        Open(None, open_range.domain, open_range.text, open_range.category, open_range.payload)
        for open_range in pushed(cell)
    )


def _range(text: str, thread: int | None) -> Open | None:
    if text.startswith(_DEFAULT):
        domain, rest = "", text[len(_DEFAULT) :].removeprefix(":")
    else:
        domain, _, rest = text.partition(":")
    tail = _TAIL.search(rest)
    name, payload = rest, None
    if tail:
        name = rest[: tail.start()]
        message = tail.group(6)
        if tail.group(5).lower() != "none" and message and (not name or name.lower() == "none"):
            name = message
        if tail.group(1).lower() != "none" and re.fullmatch(r"-?\d{1,18}", tail.group(2)):
            payload = int(tail.group(2))
    name = name.replace('""', '"')
    return Open(thread, domain, name, category(domain, name), payload) if name else None


def category(domain: str, text: str) -> str | None:
    """Return the category that opscope gave a range of its own domains: ncu's CSV has none. A call is
    recognised by its parentheses; a text that is neither a call, a step nor a phase is a layer."""
    if not domain.startswith("opscope.") or domain == "opscope.user" or "(" in text:
        return "step" if domain.startswith("opscope.") and _STEP.match(text) else None
    if _STEP.match(text):
        return "step"
    return "phase" if text.partition(" ")[0] in _PHASES else "layer"
