"""The frames of steps, and of the ranks that are late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_PARTS: Final = (
    "communication_part kernel_part copy_part set_part runtime_part loader_part op_part other_part"
)
_PHASES: Final = "input_phase forward_phase backward_phase optimizer_phase outside_phases"
_TIME: Final = ("ns", "time from the step's start to its end")
_OVERLAP: Final = ("ns", "part of communication_part during which other kernels ran")
_COMPARED: Final = ("count", "collectives of this process of which another rank's time is known")
_STEP: Final = ("number", "the step's number; null for a row that is the whole process")


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "steps()",
        "one row per step and process",
        columns(
            f"process rank step start end time {_PARTS} overlap_time {_PHASES} slow warm_up unknown reason",
            step=_STEP,
            time=_TIME,
            overlap_time=_OVERLAP,
            reason=("text", "why parts are null, or that the trace has no steps"),
        ),
    )
    yield Frame(
        "iterations()",
        "one row per iteration and process; a process without any has one row, with a reason",
        columns(
            "process rank iteration start end duration ops kernels device_time warm_up slow stable found_by"
            " certainty is_step reason",
            duration=("ns", "end - start"),
            ops=("count", "ops that began in it"),
            kernels=("count", "kernels launched in it; null if none were captured then"),
            device_time=("ns", "durations of the kernels, copies and sets launched in it added up"),
            reason=("text", "what is in doubt, or why there are none"),
        ),
    )
    yield Frame(
        "step_summary()",
        "one row per process and part of its steps: the whole step, each part, each phase",
        columns(
            "process rank part steps total share median mad p10 p90 min max slow_steps left_out"
            " warm_up_steps",
            part=("text", "step for the whole step; a part of its time; or a phase"),
            steps=("count", "steps that are counted; 0 if the trace has none"),
            total=("ns", "times of all counted steps added up"),
            share=("fraction", "total / the time of the counted steps"),
            median=("ns", "median over the steps that are no warm-up, as are the other statistics"),
            p90=("ns", "nine tenths of the steps took no longer"),
            min=("ns", "the least of a step"),
            max=("ns", "the most of a step"),
        ),
    )
    yield Frame(
        "step_phases()",
        "one row per step, process and phase",
        columns(
            "process rank step phase time share device_time kernels seen_on",
            step=_STEP,
            phase=("text", "input, forward, backward, optimizer, or outside"),
            time=("ns", "time of the step in the phase; null if the process was never seen in it"),
            share=("fraction", "time / the step's time"),
            device_time=("ns", "durations of the kernels, copies and sets launched in it added up"),
            kernels=("count", "kernels launched in it"),
        ),
    )
    yield Frame(
        "slow_steps()",
        "one row per slow step, part and op that took longer than usual",
        columns(
            "process rank step time usual excess part part_time part_excess op layer op_time op_excess",
            time=_TIME,
            part=("text", "a part of the step's time; null if none explains the excess"),
            op=("text", "the op, or the call, kernel or collective if no op is known; null: none"),
        ),
    )
    yield Frame(
        "step_trace()",
        "one row per step and process",
        columns(
            "process rank step start forward_start backward_end end time iteration_interval"
            " forward_backward step_tail seen_on reason",
            start=(
                "ns",
                "time at which the step before ended; without one, at which the step began",
            ),
            time=("ns", "end - start"),
            reason=("text", "why a part is null"),
        ),
    )
    yield Frame(
        "stragglers()",
        "one row per process, by the waiting that it caused",
        columns(
            "process rank compared last last_share lateness median_lateness max_lateness caused_waiting"
            " waiting_time usual_kind",
            compared=_COMPARED,
            waiting_time=("ns", "its own waiting for ranks that entered later"),
        ),
    )
    yield Frame(
        "collective_waits()",
        "one row per kind of collective and group, by time",
        columns(
            "kind group members size calls compared time waiting_time transfer_time uncompared_time"
            " waiting_share",
            kind=("text", "the kind of collective"),
            calls=("count", "collectives, of each rank, whose time is known"),
            time=("ns", "times of all ranks in them added up"),
        ),
    )
    yield Frame(
        "step_imbalance()",
        "one row per process, the one with most work first",
        columns(
            "process rank steps median_step median_work over_mean most_work most_work_share",
            steps=("count", "steps that another process has too"),
        ),
    )
