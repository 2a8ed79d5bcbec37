"""The frames of idle time, launches, queues, copies and sequences of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_KINDS: Final = "idle_share host_wait kernel_wait other_wait unknown_wait"
_WINDOW: Final = (
    "ns",
    "from the first start to the last end; of several captured windows, their sum",
)
_UNKNOWN: Final = ("text", "what is not known, and why; null if all is known")
_COPY: Final = ("text", "direction of a copy: HtoD, DtoH, DtoD, HtoH, PtoP …; memset for a set")
_GAPS: Final = f"window busy_time idle_time {_KINDS} idle_gaps longest_gap reason"
_OF_DEVICE: Final = ("fraction", "total / durations of all kernels, copies and sets")


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "idle()",
        "one row per process and device",
        columns(
            f"process device stream {_GAPS}",
            stream=("number", "null: the device as a whole"),
            window=_WINDOW,
            reason=_UNKNOWN,
        ),
    )
    yield Frame(
        'idle("stream")',
        "one row per process, device and stream",
        columns(f"process device stream {_GAPS}", window=_WINDOW, reason=_UNKNOWN),
    )
    yield Frame(
        "idle_steps()",
        "one row per step, process and device",
        columns(
            f"step process device time busy_time idle_time {_KINDS} reason",
            time=("ns", "the step's time on the host"),
            reason=_UNKNOWN,
        ),
    )
    yield Frame(
        "idle_ops()",
        "one row per op, layer, source line, user range and phase of the host while a device waited for it",
        columns(
            "op direction layer source range phase wait_time wait_share waits launching_time in_calls call"
            " reason",
            op=("text", "the innermost op open on the thread; null outside any op"),
            launching_time=(
                "ns",
                "part of wait_time after the launch that ended the wait had begun",
            ),
        ),
    )
    yield Frame(
        "launches()",
        "one row per process, device, kind of work and measure",
        columns(
            "process device kind measure launches min mean median p90 p95 p99 max total",
            kind=("text", "what was launched: kernel, copy, set or CUDA graph"),
            measure=(
                "text",
                "launch call: the call on the host; delay: from its begin to the start of the work; queued:"
                " from its end to that start, 0 if that is earlier; execution: the work on the device",
            ),
            min=("ns", "the shortest"),
            mean=("ns", "their mean"),
            median=("ns", "their median"),
            p90=("ns", "90th percentile, interpolated linearly"),
            p95=("ns", "95th percentile, interpolated linearly"),
            p99=("ns", "99th percentile, interpolated linearly"),
            max=("ns", "the longest"),
            total=("ns", "all added up"),
        ),
    )
    yield Frame(
        "short_launches()",
        "one row per kernel that ran shorter than a call that launched it, by the time of those calls",
        columns(
            "name op launches short_launches shorter_share total shorter_time launching_time",
            op=("text", "the op that the kernel most often belongs to"),
            total=("ns", "durations of all its launches' kernels"),
            launching_time=("ns", "time of the calls of the short launches"),
        ),
    )
    yield Frame(
        "queue()",
        "one row per process, device and stream",
        columns(
            "process device stream launches median_queue p90_queue longest_queue empty_share"
            " full_time stalled_launches stalled_time reason",
            reason=_UNKNOWN,
        ),
    )
    yield Frame(
        "queue_curve()",
        "one row per process, device, stream and time at which the queue's length changed",
        columns(
            "process device stream time queued",
            time=("ns", "time from which this length holds, until the stream's next row"),
        ),
    )
    yield Frame(
        "bandwidth()",
        "one row per process, device, kind of copy and kinds of memory, by time",
        columns(
            "process device kind src_kind dst_kind calls bytes total busy_time mean_bandwidth"
            " least_bandwidth median_bandwidth most_bandwidth reason",
            kind=_COPY,
            calls=("count", "copies or sets"),
            bytes=("bytes", "bytes copied or set; null if none are recorded"),
            busy_time=("ns", "time in which at least one of them ran"),
            reason=_UNKNOWN,
        ),
    )
    yield Frame(
        "bandwidth_curve()",
        "one row per process, device, kind of copy and time at which the bandwidth changed",
        columns(
            "process device kind time moving_bandwidth",
            kind=_COPY,
            time=("ns", "time from which this bandwidth holds, until the next row of the kind"),
        ),
    )
    yield Frame(
        "sequences()",
        "one row per sequence of kernels that a stream runs again and again, by time; no kernel is in two",
        columns(
            "kernel_sequence sequence_length occurrences total share between_time launching_time op"
            " direction layer source layers",
            total=("ns", "durations of all its kernels"),
            share=_OF_DEVICE,
            layer=("text", "layer of the first occurrence"),
            source=("text", "source line of the first occurrence"),
            direction=("text", "direction of the first occurrence"),
            layers=("count", "layers in which it occurs; null if none is known"),
        ),
    )
    yield Frame(
        "op_sequences()",
        "one row per op and sequence of all kernels, copies and sets that it launched, by occurrences",
        columns(
            "op kernel_sequence sequence_length occurrences total cpu_time",
            op=("text", "the outermost op"),
            occurrences=("count", "calls of the op that launched this sequence"),
            total=("ns", "durations of all its kernels"),
            cpu_time=("ns", "time of these calls of the op on the host"),
        ),
    )
    yield Frame(
        "overlap()",
        "seven rows per process and device: computation, communication and copies alone, in pairs, all three",
        columns(
            "process device running_work time busy_share reason",
            reason=_UNKNOWN,
            time=("ns", "time in which exactly this ran"),
        ),
    )
