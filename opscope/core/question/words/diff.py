"""The words of the frames of a difference of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "a": "mean per step of the first run",
        "b": "mean per step of the second run",
        "change": "b - a; of a part that one run does not know, the other's time",
        "compute_change": (
            "change of the time in kernels that are no collective's, hidden communication included"
        ),
        "exposed_communication_change": (
            "change of the time in communication while nothing was computed"
        ),
        "copies_change": "change of the time in copies and sets while none of the parts before went on",
        "runtime_change": "likewise in calls of the GPU's runtime",
        "data_loader_change": "likewise in waits for the data loader",
        "cpu_ops_change": "likewise in ops on the CPU",
        "other_change": "change of the rest; the parts add up to change",
        "work_a": "mean step of the first run less the waiting in collectives; null if that is not known",
        "work_b": "likewise of the second run",
        "work_change": "work_b - work_a; of a step the change of its work",
        "noise": (
            "how far the typical steps of the two runs may differ by chance (99.9 %, by Yuen's test on"
            " trimmed means); null if a run has fewer than two steps"
        ),
    },
    "fraction": {"ratio": "change / a; null where a is 0"},
    "count": {
        "steps_a": "steps of the first run that are compared, of all its processes",
        "steps_b": "likewise of the second",
        "total_calls_a": "calls in all of the first run; null of work without an op",
        "total_calls_b": "calls in all of the second run",
    },
    "value": {
        "calls_a": "mean number of calls per step in the first run; work without an op is a call each",
        "calls_b": "likewise in the second run",
    },
    "text": {
        "unit": "what is compared: step, iteration (found in what repeats) or run (the whole)",
        "op_b": "the op in the second run, where its name differs",
        "layer_b": "the layer in the second run, where it differs",
        "inputs_b": "the inputs in the second run, where they differ",
        "matched": "what is equal in both runs; null for an op of one run alone",
        "work": (
            "how the work differs: same, other shapes, other dtypes, other calls (more or fewer per step),"
            " other op; null where shapes are not recorded, and for an op of one run alone"
        ),
        "kernels_a": "the kernels' names in the first run, the most time first, separated by semicolons",
        "kernels_b": "likewise in the second run",
        "property": "what is told of the runs",
        "value_a": "the first run's; null if its profile does not tell",
        "value_b": "the second run's",
    },
    "number": {
        "process_a": "the rank's process in the first run",
        "process_b": "the rank's process in the second run",
        "step_a": "the step's number in the first run",
        "step_b": "the step's number in the second run",
    },
    "yes/no": {"same": "whether both are equal; null if one is not known"},
}
