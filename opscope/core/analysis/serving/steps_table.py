"""Each engine step of an inference server: its kind, requests, tokens, time and device time."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.engine_steps import STEPS
from opscope.core.analysis.serving.notes import served_table
from opscope.core.analysis.serving.phases import EMPTY
from opscope.core.analysis.serving.step_sums import step_sums
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns


def answer(profile: Answers) -> pl.DataFrame:
    """The engine steps of an inference server: kind, requests, tokens, times, and the replayed graph."""
    return profile.of(step_sums).select(*(column.name for column in _COLUMNS))


_COLUMNS = columns(
    f"{' '.join(STEPS)} period time device_time kernels graph_kernels graph warm_up",
    """
    step: number: its number, by begin, from 0 in each process
    kind: text: prefill, decode, mixed (both), verify (drafts are checked), draft, idle; null if nothing
        shows it
    start: ns: when its range on the host began
    end: ns: when its range on the host ended
    next: ns: when the process's next step began; of the last, its end
    requests: count: requests in the batch
    prefill_requests: count: of these in a prefill
    decode_requests: count: of these decoding
    new_tokens: count: tokens that it computed, Σq
    prefill_tokens: count: of these of prefills
    decode_tokens: count: of these of decodes; more than decode_requests where drafts are verified
    output_tokens: count: tokens that came out, one a decoding request; null where drafts were verified
    cached_tokens: count: tokens in the cache before, Σk - Σq
    sum_qq: count: Σq² over its requests
    sum_qk: count: Σq·k over its requests: pairs of a new token and a token that it may attend to
    prefill_qk: count: of these of prefills
    decode_qk: count: of these of decodes
    padded: count: requests to which the batch was padded, where the name tells it
    source: text: what tells the step: the server, or how it was found
    confidence: fraction: how sure its kind is
    period: ns: next - start
    time: ns: its part of the engine's time, as in serving_phases()
    device_time: ns: durations of the kernels, copies and sets that it launched added up
    kernels: count: kernels that it launched
    graph_kernels: count: of these in a replayed graph
    graph: number: the graph that it replayed; of several the one with most of its kernels
    warm_up: yes/no: whether it is slower than the later steps of its kind, at the begin; null: not judged
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(Frame("engine_steps()", "one row per engine step and process", tuple(_COLUMNS)),),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="engine_steps",
            title="Engine steps",
            empty=EMPTY,
            shown=(
                "process step kind requests new_tokens cached_tokens period device_time kernels "
                "graph_kernels warm_up"
            ),
            forms=[
                Column("period", "time", units.time),
                Column("device_time", "device time", units.time),
                Column("new_tokens", "tokens"),
                Column("cached_tokens", "in the cache"),
                Column("graph_kernels", "in graphs"),
            ],
            table=served_table,
            written=False,
        ),
    ),
)
