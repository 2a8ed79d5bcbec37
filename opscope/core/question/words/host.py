"""The words of the frames of data preparation and of CPU utilization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "input_wait": "time in which the thread with the steps waited for input",
        "sampled_time": "time that the samples cover",
    },
    "bytes": {
        "process_memory": "resident memory of the process",
        "peak_process_memory": "most resident memory of the process in any sample",
    },
    "fraction": {
        "machine": "busy part of all processors of the machine",
        "machine_max": "largest value of machine in a sample",
        "process_share": "cores / processors",
        "cores": "processor time of the process / time; 1 is one processor, several threads can use more",
        "cores_max": "largest value of cores in a sample",
        "child_cores": "cores of its child processes, sampled once a second",
    },
    "count": {
        "bound_steps": "steps that waited for this loader for more than 5 % of their time",
        "workers": "processes or threads that prepare data for the loader; 0: the program's own thread does",
        "prefetch": "batches that the loader prepares ahead, for each worker",
        "batch": "samples in a batch, as the loader was made",
        "queue_depth": "batches that were ready when the program asked for one",
        "empty": "how often no batch was ready when the program asked for one",
        "samples": "samples of the processors",
        "processors": "logical processors of the machine",
        "threads": "most threads that the process had",
    },
    "text": {
        "loader": "the data loader, by its class and that of its dataset",
        "verdict": (
            "input-bound (share is above 5 %, also without the longest wait), not input-bound, or cannot tell"
        ),
    },
    "yes/no": {
        "input_bound": "whether it waited for input for more than 5 % of its time",
    },
}
