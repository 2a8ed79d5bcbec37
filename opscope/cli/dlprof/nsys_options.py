"""Options of ``nsys profile`` in ``--nsys_opts``: those that opscope sets, and those that go to nsys."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from opscope.backends.nsys.command import ALWAYS, CUDA, parse_end, parse_traces

from .grammar import Usage

_NAME: Final = "--nsys_opts"
#: Single letters of ``nsys profile``, 2020 to 2026.
_LETTERS: Final = {
    "b": "backtrace", "c": "capture-range", "d": "duration", "e": "env-var", "f": "force-overwrite",
    "h": "help", "n": "inherit-environment", "o": "output", "p": "nvtx-capture", "s": "sample",
    "t": "trace", "w": "show-output", "x": "stop-on-exit", "y": "delay", "Y": "start-later",
}  # fmt: skip
#: Options of nsys that opscope sets itself, and why the user's are left out.
_OURS: Final = {
    "output": "--nsys_base_name names the report of Nsight Systems",
    "force-overwrite": "--force=true replaces the report of Nsight Systems",
    "export": "opscope exports the report of Nsight Systems by itself",
    "stats": "the statistics of Nsight Systems come from: nsys stats REPORT",
    "show-output": "the program keeps its own output",
}


@dataclass(frozen=True, slots=True)
class Options:
    """What ``--nsys_opts`` asks for; ``given`` says whether the user gave it. ``traces``: sets of calls
    besides cuda and nvtx. ``range_end``: as ``--capture-range-end``, if the program says what is recorded, by
    cudaProfilerStart. ``others`` go to nsys unchanged; ``notes`` are lines about the rest."""

    traces: tuple[str, ...] = ()
    delay: float = 0
    duration: float | None = None
    range_end: str | None = None
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    given: bool = False


def options(words: Sequence[str]) -> Options:
    """Return what the words of ``--nsys_opts`` ask for. Raises Usage for words that nsys cannot have."""
    if not words:
        return Options()
    options_given = dict(_pairs(_split(words)))
    if "help" in options_given:
        raise Usage(f"{_NAME}: for nsys's own help, type: nsys profile --help")
    notes = [f"{_NAME}: --{name}: {why}" for name, why in _OURS.items() if name in options_given]
    for name in _OURS:
        options_given.pop(name, None)
    try:
        traces = parse_traces(",".join(_sets(options_given.pop("trace", "") or "")))
        range_end = _range_end(options_given)
        delay = _seconds(options_given, "delay")
        duration = _seconds(options_given, "duration") or None
    except ValueError as error:
        raise Usage(f"{_NAME}: {error}") from None
    others = tuple(
        f"--{name}" if value is None else f"--{name}={value}"
        for name, value in options_given.items()
    )
    return Options(traces, delay, duration, range_end, others, tuple(notes), True)


def _split(words: Sequence[str]) -> list[str]:
    """Return the words for nsys: from one quoted text, with DLProf's second quotes, or from separate
    words."""
    if len(words) > 1:
        return list(words)
    text = words[0].strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Usage(f"{_NAME}={text}: {error}") from None


def _pairs(words: list[str]) -> list[tuple[str, str | None]]:
    """Return the options' long names with their values; None for an option without a value."""
    pairs: list[tuple[str, str | None]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("--") and len(name) > 2:
            key = name[2:]
        elif word.startswith("-") and word[1:2] in _LETTERS:
            key, value = _LETTERS[word[1]], word[2:].removeprefix("=")
            equals = value
        else:
            raise Usage(f"{_NAME}: {word} is no option of nsys profile")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("-") else ""
        pairs.append((key, value if equals or value else None))
    return pairs


def _sets(text: str) -> list[str]:
    every = [word.strip() for word in text.split(",")]
    return [word for word in every if word and word not in (*ALWAYS, "none")]


def _seconds(options_given: dict[str, str | None], name: str) -> float:
    text = options_given.pop(name, None) or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"--{name}={text}: give seconds, 0 or more")
    return seconds


def _range_end(options_given: dict[str, str | None]) -> str | None:
    """Take the options of a range that the program marks; None if they name another range or none."""
    if options_given.get("capture-range") != CUDA:
        return None
    options_given.pop("capture-range")
    options_given.pop("stop-on-range-end", None)  # an option of 2020; opscope always stops there
    return parse_end(options_given.pop("capture-range-end", None) or "stop")
