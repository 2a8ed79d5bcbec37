"""The frames of light mode."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.core.question.column import Frame
from opscope.core.question.words import columns


def frames() -> Iterator[Frame]:
    """Yield the frames of this subject."""
    yield Frame(
        "light()",
        "one row per process and phase of its steps, and before them one for the whole step (phase `step`)",
        columns(
            "process rank phase steps total share mean median p90 p99 max reason",
            phase=("text", "the phase: its time is not in another; step: all of them"),
            steps=("count", "steps that ended, without those that were recorded in full"),
            total=("ns", "time of all steps in the phase"),
            share=("fraction", "total / the time of all steps"),
            mean=("ns", "mean over all steps"),
            median=("ns", "median over all steps, right within 1 %"),
            p90=("ns", "nine of ten steps take no longer; right within 1 %"),
            p99=("ns", "99 of 100 steps take no longer; right within 1 %"),
            max=("ns", "the longest step; null for a phase"),
            reason=("text", "why nothing is known of the phase: none was seen"),
        ),
    )
    yield Frame(
        "light_steps()",
        "one row per step that was kept whole, the slowest first, those recorded in full last",
        columns(
            "process rank step start duration input_phase forward_phase backward_phase optimizer_phase"
            " collective_phase outside_phases full",
            duration=("ns", "time of the step"),
            forward_phase=("ns", "time before a backward pass, from the end of another phase on"),
        ),
    )
    yield Frame(
        "light_cost()",
        "one row per process that light mode measured",
        columns(
            "process rank steps full_steps step_cost step_cost_error step_cost_share writing_share spells"
            " spells_recorded reason",
            steps=("count", "steps that ended, without those that were recorded in full"),
            reason=("text", "why spells were not recorded, with how many"),
        ),
    )
    yield Frame(
        "energy()",
        "one row per process and GPU whose energy or power was sampled",
        columns(
            "process rank device sampled_time energy power max_power counted_steps step_energy reason",
            sampled_time=("ns", "time from the first sample to the last"),
            reason=("text", "why a value is null, or of what it was made"),
        ),
    )
