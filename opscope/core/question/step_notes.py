"""Say where the steps of a profile come from, and which are warm-up: the lines below the tables of steps."""

from __future__ import annotations

from typing import Any, Final

#: The beginnings of notes on where steps come from, each with short words for a summary's line.
_SOURCES: Final = {
    "steps inferred from ": "found by",
    "steps detected from ": "perhaps, found by",
    "steps are": "by a key node",
}
_HAND: Final = 6


def step_notes(profile: Any) -> list[str]:
    """Return the lines that say where the profile's steps come from and which of them are warm-up."""
    notes = [note for note in _whats(profile) if note.startswith(tuple(_SOURCES))]
    steps = profile.steps()
    warm = steps.filter(steps["warm_up"].fill_null(False))
    if len(warm):
        each = [f"step {number}" for number in warm["step"].unique().sort().to_list()]
        more = f" and {len(each) - _HAND} more" if len(each) > _HAND else ""
        notes.append(
            f"warm-up: {', '.join(each[:_HAND])}{more}; in totals, and left out of medians, quantiles and the"
            " slow steps' count"
        )
    return notes


def source_of_steps(profile: Any) -> str:
    """Return in a few words where steps come from; "" where the program marks them."""
    for note in _whats(profile):
        for begin, words in _SOURCES.items():
            if note.startswith(begin):
                by, confidence, rest = note.removeprefix(begin).partition(" (confidence ")
                number = rest.partition(")")[0].partition(":")[0]
                return f"{words} {by}, confidence {number}" if confidence else words
    return ""


def _whats(profile: Any) -> list[str]:
    return [str(note) for note in profile.notes()["what"].to_list()]
