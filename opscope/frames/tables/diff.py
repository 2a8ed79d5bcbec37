"""The frames of the difference of two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.frames.column import Frame
from opscope.frames.words import columns

_PART: Final = (
    "text",
    "what the process did: communication, kernels, copies, sets, runtime (calls of the GPU's runtime), data"
    " loader, CPU ops, other; a moment counts for the first of these that went on then",
)
_SHARE: Final = ("fraction", "change / the change of the step; null if that is 0")
_OP: Final = ("text", "the op; for work without one, the name of the kernel, copy, call or range")
_VERDICT: Final = (
    "text",
    "slower or faster (changed by more than the noise), within noise, same (no change), new, gone; null where"
    " the noise is not known",
)
_LAYER: Final = ("text", "the layer; null if it is not known")


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "diff(other)",
        "one row per part of the step, the largest change first; they add up to the step",
        columns(
            "part a b change share noise verdict reason",
            part=_PART,
            share=_SHARE,
            verdict=_VERDICT,
            reason=("text", "why a or b is null"),
        ),
    )
    yield Frame(
        'diff(other, "cause")',
        "one row per part and op, the largest change first; they add up to the step",
        columns(
            "part op direction layer inputs a b change share noise verdict",
            part=_PART,
            op=("text", f"{_OP[1]}; null for the part other"),
            layer=_LAYER,
            share=_SHARE,
            verdict=_VERDICT,
        ),
    )
    yield Frame(
        'diff(other, "op")',
        "one row per op: its device time (without a GPU, its own); what changed beyond the noise first",
        columns(
            "op direction layer op_b layer_b inputs inputs_b matched work a b change ratio noise verdict"
            " calls_a calls_b",
            op=_OP,
            layer=_LAYER,
            verdict=_VERDICT,
        ),
    )
    yield Frame(
        'diff(other, "kernel")',
        "one row per op that other kernels work for on the same inputs, by time",
        columns("op direction layer inputs kernels_a kernels_b a b change", op=_OP, layer=_LAYER),
    )
    yield Frame(
        'diff(other, "run")',
        "one row per property of the runs, those that differ first",
        columns("property value_a value_b same"),
    )
    yield Frame(
        'diff(other, "step")',
        "one row: the step",
        columns(
            "unit a b change ratio noise verdict steps_a steps_b reason",
            verdict=_VERDICT,
            reason=("text", "why a time or the noise is null"),
        ),
    )
