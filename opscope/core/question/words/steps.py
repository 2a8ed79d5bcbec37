"""The words of the frames of steps, their parts and phases, and of the ranks that are late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The meaning of each column name, by unit.
BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "communication_part": (
            "part of the step in collectives: their kernels, or without a GPU what the backend ran; also"
            " while other kernels ran"
        ),
        "kernel_part": "part of the rest in which other kernels ran",
        "copy_part": "part of the rest in which something was copied",
        "set_part": "part of the rest in which memory was set",
        "runtime_part": "part of the rest in a call of the GPU's runtime or driver",
        "loader_part": "part of the rest in a data loader; null if none was seen",
        "op_part": "part of the rest in an op on the CPU",
        "other_part": "the rest of the step: nothing that was recorded ran",
        "input_phase": "time in which the step waited for its input",
        "forward_phase": "time in the forward pass",
        "backward_phase": "time in the backward pass",
        "optimizer_phase": "time in the optimizer",
        "outside_phases": "time outside these phases",
        "mad": "median absolute deviation: the median distance from the median",
        "p10": "a tenth of the steps took no longer",
        "usual": "median time of the process's steps that are not slow",
        "excess": "time - usual",
        "part_time": "time of the step in the part",
        "part_excess": "part_time - the median of the part over the process's other steps",
        "op_time": "durations of the op in the step added up: device time, or self time on the host",
        "op_excess": "op_time - the median of the op over the process's other steps",
        "forward_start": "time at which the forward pass began",
        "backward_end": "time at which the backward pass ended",
        "iteration_interval": "from start to forward_start: the wait for data",
        "forward_backward": "from forward_start to backward_end",
        "step_tail": "from backward_end to end: reduction of gradients, optimizer",
        "transfer_time": "the shortest time of a rank in each collective, once for each rank in it",
        "uncompared_time": "time in collectives of which no other rank's time is known",
        "lateness": "how much later it entered than the first rank, in collectives that it entered last",
        "median_lateness": "median of lateness over the collectives that it entered last",
        "max_lateness": "largest lateness in one collective",
        "caused_waiting": "waiting of the other ranks in the collectives that it entered last",
        "median_step": "median time of its steps",
        "median_work": (
            "median over its steps of the step's time less the waiting in collectives; null if that is"
            " not known"
        ),
    },
    "fraction": {
        "certainty": "how sure it is that these are the iterations; null if the program marks them",
        "waiting_share": "waiting_time / (waiting_time + transfer_time)",
        "last_share": "last / compared",
        "over_mean": "median over the steps of its work / the mean work of all ranks in the step",
        "most_work_share": "most_work / the steps in which work is known",
    },
    "number": {
        "iteration": "the iteration's number: the step's, or counted from 0; null for a process without any",
    },
    "count": {
        "slow_steps": "steps that were slow and no warm-up; null if too few to judge",
        "warm_up_steps": (
            "counted steps that were warm-up: their times are in total and share only; null if too few to"
            " judge"
        ),
        "left_out": "steps that are not counted: the device was not captured, or nothing was recorded",
        "compared": "collectives, of each rank, of which at least two ranks' times are known",
        "last": "of those compared, collectives that it alone entered last",
        "most_work": "steps in which it alone had the most work",
    },
    "text": {
        "found_by": (
            "marked by the program; key node and its name; global_step; or what repeats: optimizer, function,"
            " iteration, sequence (of ops), kernels"
        ),
        "unknown": "which parts are null, and why; null if none is",
        "seen_on": (
            "where the phases were seen: host (ranges and ops), device (kernels), or the source itself states"
            " them"
        ),
        "usual_kind": "the kind of collective that it most often entered last",
    },
    "yes/no": {
        "slow": (
            "whether it is an outlier: modified z-score above 3.5 and at least 5 % above the median;"
            " null for fewer than five steps"
        ),
        "warm_up": (
            "whether it is one of the first, which are slower than the later ones: modified z-score above 3.5"
            " and at least a fifth above the median of the second half; null for fewer than five"
        ),
        "stable": (
            "whether it is in the longest range of iterations without warm-up, slow ones and other work"
        ),
        "is_step": "whether it is a step in all frames; otherwise only where a range of them is selected",
    },
}
