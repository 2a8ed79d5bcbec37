"""The words of the frames of many ranks beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The meaning of each column name, by unit.
BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "more": (
            "how much longer than the first rank it did what is the cause, since the group's collective"
            " before"
        ),
        "slowest_work": "the rank's time in the step less its waiting in collectives; the most of a rank",
        "least_work": "the least work of a rank in the step",
        "spread": "slowest_work - least_work",
        "waited": (
            "how long it, or the longest of those that called it, had waited when the recording ended; null"
            " if it ended"
        ),
        "called": "when the process called it",
        "ended": "when it ended; null if that is not in the recording",
        "median_apart": "median distance of the last rank's end from the first's",
        "max_apart": "largest distance of the last rank's end from the first's",
        "clock_error": (
            "how far the clocks of two of the ranks may be apart at most; 0 on one machine; null if not"
            " known"
        ),
    },
    "bytes": {
        "sent_bytes": "bytes that it sent to all ranks, itself included",
        "received_bytes": "bytes that it received from all ranks, itself included",
    },
    "bytes/s": {
        "best_bandwidth": "the most of a collective",
        "skewed_bandwidth": "as bus_bandwidth, of the mean time of the ranks, their waiting included",
    },
    "fraction": {
        "caused_share": "caused_waiting / that of all rows",
        "relative_spread": "spread / median_work",
        "over_median": "slowest_work / median_work",
        "relative": "value / typical",
        "sent_over_mean": "sent_bytes / the mean of the ranks",
        "received_over_mean": "received_bytes / the mean of the ranks",
    },
    "value": {
        "value": "kernel time: relative to the median of all ranks; of a sample its median",
        "typical": "median of the value over the ranks",
        "z_score": (
            "distance from the median in robust standard deviations (0.6745 · distance / MAD); null if most"
            " values are equal or too few are known"
        ),
    },
    "number": {
        "collective": "which of the group's collectives it is, as its record or its order says",
        "source_rank": "the rank that sent",
        "target_rank": "the rank that received",
    },
    "count": {
        "groups": "process groups of these collectives",
        "present": "processes that are seen in these collectives",
        "partial": (
            "collectives in which fewer processes are seen than the group has ranks: their waiting is that of"
            " the ranks that are seen; null if size, or which collectives are one, is not known"
        ),
        "entered": "ranks that called it",
        "completed": "ranks on which its end was recorded",
        "machines": "machines of the group's ranks; null unless all ranks are in the profile",
        "behind": "collectives of the group that the farthest rank has called beyond it; null if it is alone",
        "differing": (
            "collectives whose ends are farther apart than clock_error and a microsecond; null if the"
            " error is not known"
        ),
        "left_last": "how many of these it left last",
    },
    "text": {
        "cause": "local compute, input, launch, or an earlier wait; null if the trace does not show it",
        "fault": "not entered by all; kinds, sizes or dtypes differ; null where it cannot be told",
        "missing_ranks": "ranks of the group that are in the profile and did not call it",
        "who": "which ranks have which value",
        "waits_for": "ranks that have not called it, if it did not end",
        "place": "within a machine or between machines; null unless all ranks are in the profile",
        "recorded_by": "whose record says so: its sender's, or its receiver's if the sender's is missing",
    },
    "yes/no": {
        "outlier": (
            "whether the modified z-score is above 3.5 and it is 2 % from the median; null for fewer than"
            " four ranks"
        ),
    },
}
