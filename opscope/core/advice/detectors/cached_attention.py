"""Attention over a cache that is far from the time in which the device could read the cache."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import ms
from opscope.core.advice.served import engine
from opscope.core.perf import wants_lengths
from opscope.core.question import parameters, units

#: A part of the engine's device time from which attention matters.
_WORTH: Final = 0.1
_NEAR: Final = 0.4
_CHANGE: Final = (
    "Try another attention backend of the server (FlashInfer, FlashAttention 3, FlashMLA, Triton),"
    " a larger page, or split keys over more blocks (flash decoding)."
)
_REASONING: Final = (
    "Compared is the time of attention whose lengths are known with the larger of its bytes and"
    " FLOPs at the device's peaks (roofline). At least nothing: small batches do not fill the"
    " device. At most the difference."
)


def find(answers: Answers, least: float = _WORTH, near: float = _NEAR) -> Answer:
    """One finding for all attention over a cache."""
    steps = engine(answers)
    if isinstance(steps, CannotTell):
        return steps
    frame = answers.ask("efficiency", "op")
    names = [name for name in frame["op"].cast(pl.String) if name and wants_lengths(name)]
    attention = frame.filter(
        pl.col("op").cast(pl.String).is_in(names) & pl.col("ideal_time").is_not_null()
    )
    if attention.is_empty():
        return CannotTell(
            "no attention over a cache has a roof: its lengths or the device are not known"
        )
    time, ideal = int(attention["duration"].sum()), int(attention["ideal_time"].sum())
    device = int(steps["device_time"].sum())
    if time <= least * device or ideal >= near * time:
        return []
    return [
        Finding(
            what=f"attention over the cache runs at {units.share(ideal / time)} of its roof:"
            f" {ms(time)}, where its bytes and FLOPs need {ms(ideal)}",
            evidence=", ".join(names[:3]),
            recommendation=_CHANGE,
            time=time,
            saving_least=0,
            saving_most=time - ideal,
            reasoning=_REASONING,
            confidence="medium",
        )
    ]


DETECTOR = Detector(
    name="cached_attention",
    question="Is attention over the cache far from the time that reading the cache takes?",
    find=find,
    needs_all_kernels=True,
    fires="more than {least} of the engine's device time, at less than {near} of its roof",
    thresholds={
        "least": parameters.share("the least share of the engine's device time"),
        "near": parameters.share("the part of its roof at which it is near enough"),
    },
    looks_at="The time of attention over a cache whose lengths a server's step tells, beside the"
    " time that its bytes and FLOPs take at the device's peaks.",
    abstains="Nothing marks engine steps, their kinds were guessed, fewer than five decode, or no"
    " attention has a roof: nothing tells its lengths, or the device is not known.",
)
