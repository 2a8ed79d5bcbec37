"""The frame of the diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.core.question.column import Frame
from opscope.core.question.words import columns


def frames() -> Iterator[Frame]:
    """Yield the frames of this subject."""
    yield Frame(
        "diagnosis()",
        "one row per finding, what costs most first, then one for each thing that cannot be told",
        columns(
            "process rank finding share lost text to_try",
            finding=(
                "text",
                "the answer in a few words: a cause; `healthy`; `cannot tell`, of what the text says",
            ),
            share=(
                "fraction",
                "part of the steps' time that it concerns; of a straggler in light mode, of one step",
            ),
        ),
    )
