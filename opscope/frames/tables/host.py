"""The frames of data preparation and of CPU utilization."""

from __future__ import annotations

from collections.abc import Iterator

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_OF_LOADER = {
    "calls": ("count", "waits for the loader"),
    "source": ("text", "where the loader was asked for the batch: file and line, innermost first"),
}


def frames() -> Iterator[Frame]:
    """Yield the frames of this subject."""
    yield Frame(
        "data_preparation()",
        "one row per process and data loader that the program waited for, the longest waits first",
        columns(
            "process loader source calls total mean median p90 max input_wait share steps bound_steps workers"
            " prefetch batch queue_depth empty verdict reason",
            **_OF_LOADER,
            total=("ns", "all waits for the loader added up"),
            mean=("ns", "mean wait"),
            median=("ns", "median wait"),
            p90=("ns", "90th percentile of the waits, interpolated between neighbours"),
            max=("ns", "longest wait"),
            input_wait=("ns", "part of total that belongs to steps"),
            share=("fraction", "input_wait / the time of the steps that asked this loader"),
            steps=("count", "steps that asked this loader"),
            queue_depth=(
                "count",
                "median number of batches that were ready when the program asked for one, rounded down",
            ),
            reason=("text", "why share and verdict are not known"),
        ),
    )
    yield Frame(
        "input_waits()",
        "one row per step that ended, in order of time",
        columns(
            "process thread step start duration input_wait share calls queue_depth loader source input_bound"
            " reason",
            **_OF_LOADER,
            duration=("ns", "time of the step, from the first wait after the step before on"),
            share=("fraction", "input_wait / duration"),
            queue_depth=("count", "fewest batches that were ready when the step asked for one"),
            loader=("text", "the data loader with most of the wait"),
            reason=("text", "why it is not known how long the step waited"),
        ),
    )
    yield Frame(
        "cpu_utilization()",
        "one row per process that was sampled; means are over the time that the samples cover",
        columns(
            "process samples sampled_time machine machine_max cores cores_max process_share child_cores"
            " processors threads peak_process_memory",
        ),
    )
    yield Frame(
        "cpu_samples()",
        "one row per process and sample, in order of time",
        columns(
            "process start end machine cores process_memory",
            start=("ns", "time of the sample before, from which on this one holds"),
            end=("ns", "time of the sample"),
        ),
    )
    yield Frame(
        "cpu_by_step()",
        "one row per step that ended, in order of time; means are over the step",
        columns(
            "process thread step start duration samples machine cores child_cores reason",
            duration=("ns", "time of the step"),
            samples=("count", "samples that hold in a part of the step"),
            reason=("text", "why it is not known what the processors did"),
        ),
    )
    yield Frame(
        "cpu_by_op()",
        "one row per process, op and direction in which samples fall, the most samples first; one more for"
        " samples outside any op",
        columns(
            "process op direction samples machine cores reason",
            samples=("count", "samples in whose middle the op was the innermost of a thread"),
            reason=("text", "why the means are not known, or why there is no op"),
        ),
    )
