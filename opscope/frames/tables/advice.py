"""The frames of what to change in the program."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.core.question.column import Frame
from opscope.core.question.words import columns


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "advice()",
        "one row per finding, by what it saves; then one per detector that cannot tell or found nothing",
        columns(
            "number detector outcome finding evidence recommendation time saving saving_share saving_least"
            " saving_most reasoning confidence reason",
            time=("ns", "the time that the finding is about"),
            saving=(
                "ns",
                "best estimate of what the change would save; null if only bounds are known",
            ),
            saving_share=("fraction", "saving / wall time of the window"),
            reason=("text", "why the detector cannot tell"),
        ),
    )
    yield Frame(
        "advice_combined()",
        "one row: the timeline replayed with the changes of all findings",
        columns(
            "wall_time new_wall_time saving saving_share step_saving simulated not_simulated omitted reason",
            new_wall_time=("ns", "time that it would take with all changes"),
            saving=("ns", "wall_time - new_wall_time; null if nothing could be replayed"),
            reason=("text", "why saving is null"),
        ),
    )
    yield Frame(
        "advice_evidence()",
        "one row per piece of evidence of a finding, the finding with most saving first",
        columns(
            "number detector op_id op kernel direction layer source inputs dtypes process device step count"
            " time detail",
            kernel=("text", "the kernel's name"),
            op_id=("number", "id of the range of an op of the row; null if there is none"),
            device=("number", "the device's number"),
        ),
    )
