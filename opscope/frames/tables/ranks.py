"""The frames of many ranks beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_KIND: Final = ("text", "the kind of collective")
_GROUP: Final = ("text", "name of the process group")
_WHY_NULL: Final = ("text", "why a value is null; null if none is")


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "late_causes()",
        "one row per process and cause of its entering collectives last, by the waiting that it caused",
        columns(
            "process rank cause last lateness caused_waiting caused_share more groups reason",
            last=("count", "collectives that it alone entered last, for this cause"),
            reason=("text", "why the cause is not known"),
        ),
    )
    yield Frame(
        "slowest_ranks()",
        "one row per step that several ranks have",
        columns(
            "step compared process rank slowest_work median_work least_work spread relative_spread"
            " over_median reason",
            step=("number", "the step's number"),
            compared=("count", "ranks that have the step"),
            process=("number", "the process with most work in it"),
            rank=(
                "number",
                "the rank with most work in it; null if several have, or work is not known",
            ),
            median_work=("ns", "median work of the ranks in the step"),
            reason=("text", "why no rank is named"),
        ),
    )
    yield Frame(
        "collective_faults()",
        "one row per collective and what is wrong with it; then a row per reason why others are not judged",
        columns(
            "fault group members size collective kind entered completed waited missing_ranks who reason",
            kind=_KIND,
            group=_GROUP,
            reason=(
                "text",
                "why it cannot be told whether there is a fault; null where there is one",
            ),
        ),
    )
    yield Frame(
        "last_collectives()",
        "one row per process and group: the last collective that it called",
        columns(
            "process rank group members size calls collective kind bytes called ended waited behind waits_for"
            " reason",
            kind=_KIND,
            group=_GROUP,
            calls=("count", "collectives of the group that it called"),
            bytes=("bytes", "larger of input and output"),
            reason=("text", "why ended is null"),
        ),
    )
    yield Frame(
        "collective_bandwidth()",
        "one row per kind of collective, group and message size, by transfer time",
        columns(
            "kind group members size bytes place machines compared transfer_time bus_bandwidth"
            " median_bandwidth best_bandwidth skewed_bandwidth reason",
            kind=_KIND,
            group=_GROUP,
            bytes=("bytes", "larger of input and output, of one rank"),
            compared=("count", "collectives of which the times of several ranks are known"),
            transfer_time=("ns", "the shortest time of a rank in each, added up"),
            bus_bandwidth=(
                "bytes/s",
                "bytes that at least cross each rank's link, as nccl-tests defines them, / transfer_time",
            ),
            median_bandwidth=(
                "bytes/s",
                "median over the collectives of bytes on the wire / transfer time",
            ),
            reason=_WHY_NULL,
        ),
    )
    yield Frame(
        "rank_outliers()",
        "one row per process, device and measure; outliers first",
        columns(
            "process device rank measure value typical relative z_score compared outlier reason",
            measure=("text", "kernel time, or the name of what was sampled"),
            compared=("count", "ranks (processes and devices) that have the measure"),
            reason=("text", "why it is not judged"),
        ),
    )
    yield Frame(
        "rank_pairs()",
        "one row per kind and pair of ranks, by bytes",
        columns(
            "kind source_rank target_rank calls bytes share over_mean recorded_by reason",
            kind=("text", "all_to_all, or send for messages"),
            calls=("count", "all-to-alls, or messages"),
            bytes=("bytes", "bytes that moved from the one to the other"),
            share=("fraction", "bytes / all that the source sent"),
            over_mean=("fraction", "bytes / the mean of all pairs"),
            reason=("text", "why a rank is null"),
        ),
    )
    yield Frame(
        "rank_loads()",
        "one row per kind and rank, by what it received",
        columns(
            "kind rank sent_bytes received_bytes sent_over_mean received_over_mean",
            kind=("text", "all_to_all, or send for messages"),
        ),
    )
    yield Frame(
        "collective_ends()",
        "one row per kind of collective and group; those whose ends differ most first",
        columns(
            "kind group members size compared median_apart max_apart clock_error differing process rank"
            " left_last reason",
            kind=_KIND,
            group=_GROUP,
            compared=("count", "collectives of which the ends of several ranks are known"),
            process=("number", "the process that left last most often, of those that differ"),
            rank=("number", "the rank that left last most often, of those that differ"),
            reason=_WHY_NULL,
        ),
    )
