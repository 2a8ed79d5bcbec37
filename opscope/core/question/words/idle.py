"""The words of the frames of idle time, launches, queues, copies and sequences of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "busy_time": "part of the time in which at least one of them ran",
        "idle_time": "the rest of the time: nothing ran",
        "host_wait": "part of idle_time in gaps whose next work was launched after the one before had ended",
        "kernel_wait": "part of idle_time in gaps below 30 µs whose next work had been launched in time",
        "other_wait": "part of idle_time in longer gaps whose next work had been launched in time",
        "unknown_wait": "part of idle_time whose next work has no launch record",
        "longest_gap": "longest time in which nothing ran",
        "wait_time": "host wait that lies in the row's op",
        "launching_time": "time of the launch calls that launched it",
        "in_calls": "part of wait_time inside CUDA calls",
        "shorter_time": "durations of the short launches' kernels",
        "between_time": "time between its kernels in which their stream ran nothing",
        "full_time": "time in which the queue held at least 1,024 launches",
        "stalled_time": "part of launch calls in which the queue held more than 1,024 launches",
    },
    "fraction": {
        "idle_share": "idle_time / the time of the row",
        "wait_share": "wait_time / the host wait of all devices",
        "shorter_share": "short_launches / launches",
        "busy_share": "time / the device's busy time",
        "empty_share": "part of the time in which the queue was empty",
    },
    "count": {
        "idle_gaps": "times in which nothing ran",
        "waits": "gaps, or parts of gaps, in which the host did this",
        "launches": "calls that launched work",
        "short_launches": "launches whose kernel ran shorter than the call",
        "median_queue": "length that the queue did not exceed in half of the time",
        "p90_queue": "length that the queue did not exceed in 90 % of the time",
        "longest_queue": "greatest length of the queue",
        "queued": "launches that wait from this time on",
        "stalled_launches": "launch calls during which the queue held more than 1,024 launches",
        "occurrences": "how often the sequence ran",
        "sequence_length": "kernels, copies and sets of the sequence",
    },
    "bytes/s": {
        "mean_bandwidth": "bytes / time of the copies whose bytes are known",
        "least_bandwidth": "bandwidth of the slowest copy",
        "median_bandwidth": "median of the bandwidths of single copies",
        "most_bandwidth": "bandwidth of the fastest copy",
        "moving_bandwidth": "bandwidth of all copies of the kind that run from this time on, added up",
    },
    "text": {
        "call": "the CUDA call with most of in_calls",
        "running_work": "what ran, and nothing else: computation, communication, copies and sets, or several",
        "kernel_sequence": "names of the kernels in order, separated by |",
    },
}
