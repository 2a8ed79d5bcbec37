"""The waits of each request of a server and its use of the engine: queueing, prefill, decode, device time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.notes import no_rows, served_table
from opscope.core.analysis.serving.shares import shares
from opscope.core.analysis.serving.step_sums import step_sums
from opscope.core.attribution.served_steps import are_alike
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.words import columns

EMPTY = "no requests: --requests FILE gives the server's log of them (docs/serving.md)"
#: Why a request has no share of the engine's time, or lacks some parts.
OUTSIDE = "it is outside the recorded steps"
BEFORE = "it came before the first recorded step"
AFTER = "it ended after the last recorded step"
SEVERAL = "several engines ran different batches: which of them ran a request is not recorded"
NO_FIRST = "the log does not tell its first token"
NOT_LOGGED = "requests that the steps had and the log does not tell"


def work_windows(profile: Answers) -> pl.DataFrame:
    """The engine's steps (``step_sums``), and when the work of each ``began`` and ``ended`` (ns): on the
    device, else the bounds of its range."""
    began = pl.coalesce("device_begin", "start")
    ended = pl.max_horizontal(pl.coalesce("device_end", "end"), began + 1)
    return profile.of(step_sums).with_columns(began.alias("began"), ended.alias("ended"))


def request_shares(profile: Answers) -> pl.DataFrame:
    """The share of each request in each process's engine: ``process``, ``request`` (its place in the log, -1:
    not in the log), prefill_steps, decode_steps, begun (ns, when its first prefill began), prefilled (tokens
    of its prefill steps), device_time, time (ns)."""
    steps, requests = profile.of(work_windows), profile.trace["requests"]
    parts = []
    for process in steps.partition_by("process", maintain_order=True):
        number = process["process"][0]
        begun = process.select("row", "start", pl.col("prefill_tokens").alias("prefilled"))
        for rows in shares(process, requests):
            parts.append(
                rows.join(begun, on="row", how="left")
                .group_by("request")
                .agg(
                    pl.lit(number, pl.Int32).first().alias("process"),
                    (pl.col("phase") == 0).sum().cast(pl.Int64).alias("prefill_steps"),
                    (pl.col("phase") == 1).sum().cast(pl.Int64).alias("decode_steps"),
                    pl.col("start").filter(pl.col("phase") == 0).min().alias("begun"),
                    pl.col("prefilled").filter(pl.col("phase") == 0).sum(),
                    pl.col("device_time", "time").sum(),
                )
            )
    if not parts:
        return pl.DataFrame(schema={"process": pl.Int32, "request": pl.Int64, **_SUMS})
    return (
        pl.concat(parts)
        .group_by("process", "request")
        .agg(
            pl.col("prefill_steps", "decode_steps").sum(),
            pl.col("begun").min(),
            pl.col("prefilled", "device_time", "time").sum(),
        )
    )


_SUMS: Final = {
    "prefill_steps": pl.Int64,
    "decode_steps": pl.Int64,
    "begun": pl.Int64,
    "prefilled": pl.Int64,
    "device_time": pl.Int64,
    "time": pl.Int64,
}


def request_times(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the log's requests with ``request`` (their place), ``ttft``, ``tpot`` and ``lasted`` (ns)."""
    first, last = pl.col("first_token"), pl.col("finished")
    after = pl.col("output_tokens") - 1
    return requests.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("request"),
        (first - pl.col("arrival")).alias("ttft"),
        pl.when(after > 0).then((last - first) / after).alias("tpot"),
        (last - pl.col("arrival")).alias("lasted"),
    )


def requests_of(profile: Answers) -> pl.DataFrame:
    """Return a row per request and process with engine steps, the largest share first, and a row per
    process for the share of requests that are not in the log."""
    logged = request_times(profile.trace["requests"])
    steps = profile.of(work_windows)
    processes = steps.group_by("process", "rank", maintain_order=True).agg(
        pl.col("start").min().alias("since"),
        pl.col("ended").max().alias("until"),
        pl.col("period").last().alias("last"),
    )
    if len(steps) and not are_alike(steps):
        return _alone(logged, SEVERAL)
    if steps.is_empty():
        return _alone(logged, OUTSIDE)
    had = profile.of(request_shares)
    every = processes.join(logged, how="cross").join(had, on=["process", "request"], how="left")
    unseen = (pl.col("arrival") > pl.col("until")) | (
        pl.coalesce("finished", "first_token", "arrival") < pl.col("since")
    )
    # the request's steps computed as many tokens as its prompt has, so none of its prefills is missing
    all_seen = (pl.col("prefilled") >= pl.col("prompt_tokens")).fill_null(False)
    counted = ("prefill_steps", "decode_steps", "device_time", "time")
    known = every.with_columns(
        pl.when(~unseen).then(pl.col(counted).fill_null(0)),
        pl.when(unseen)
        .then(pl.lit(OUTSIDE))
        .when(pl.col("first_token").is_null())
        .then(pl.lit(NO_FIRST))
        .when((pl.col("arrival") < pl.col("since")) & ~all_seen)
        .then(pl.lit(BEFORE))
        .when(pl.col("finished") > pl.col("until") + pl.col("last"))
        .then(pl.lit(AFTER))
        .alias("reason"),
    )
    began = pl.when((pl.col("arrival") >= pl.col("since")) | all_seen).then("begun")
    waited = pl.coalesce(began - pl.col("arrival"), "queue")
    # the queue time that a server reports may exceed the time that the log allows
    queue = pl.min_horizontal(waited, "ttft")
    lasting = known.with_columns(
        pl.when(waited.is_not_null()).then(queue).alias("queue")
    ).with_columns(
        (pl.col("ttft") - pl.col("queue")).alias("prefill"),
        (pl.col("finished") - pl.col("first_token")).alias("decode"),
    )
    beside = (
        had.filter(pl.col("request") < 0)
        .join(processes, on="process", how="left")
        .with_columns(pl.lit(NOT_LOGGED).alias("reason"), pl.lit(None, pl.Int64).alias("begun"))
    )
    rows = pl.concat([lasting, beside], how="diagonal")
    return rows.sort(
        "process", "device_time", "request", descending=[False, True, False], nulls_last=True
    )


def _table(report: Report, profile: Answers, view: View) -> Table:
    """Return the report, with a line on how well the log and the steps agree."""
    table = served_table(report, profile, view)
    rows = report.frame(profile).filter(
        pl.col("id").is_not_null() & pl.col("reason").is_null() & (pl.col("output_tokens") > 0)
    )
    alike = rows.filter(pl.col("decode_steps") == pl.col("output_tokens") - 1)
    count = units.counted(len(rows), "request")
    line = f"{len(alike)} of {count} decoded in as many steps as they got tokens after the first"
    return replace(table, footnotes=[*table.footnotes, line]) if len(rows) else table


def _alone(logged: pl.DataFrame, reason: str) -> pl.DataFrame:
    """Return the requests, without any process."""
    return logged.with_columns(
        pl.lit(None, pl.Int32).alias("process"),
        pl.lit(None, pl.Int32).alias("rank"),
        *(pl.lit(None, kind).alias(name) for name, kind in _SUMS.items()),
        (pl.col("ttft") - pl.col("queue")).clip(lower_bound=0).alias("prefill"),
        (pl.col("finished") - pl.col("first_token")).alias("decode"),
        pl.lit(reason).alias("reason"),
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The waits of each request in a server's log, and its share of the engine's steps."""
    if profile.trace["requests"].is_empty():
        return no_rows(_COLUMNS)
    frame = requests_of(profile)
    names = [column.name for column in _COLUMNS]
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None).alias(name) for name in names
    )


_COLUMNS = columns(
    "process rank id arrival first_token finished ttft tpot queue prefill decode prompt_tokens output_tokens "
    "prefill_steps decode_steps device_time time reason",
    """
    id: text: the request's name in the log; null for those that the steps had and the log does not tell
    arrival: ns: when it came
    first_token: ns: when its first token came out
    finished: ns: when it ended
    ttft: ns: first_token - arrival
    tpot: ns: (finished - first_token) / (output_tokens - 1); null with less than two tokens
    queue: ns: from its arrival to the begin of its first step, else what the server says; null if it came
        before the recorded steps and the server does not say
    prefill: ns: from there to its first token: queue + prefill is ttft
    decode: ns: from its first token to its end
    prompt_tokens: count: tokens of its prompt, as the log tells
    output_tokens: count: tokens that it got, as the log tells
    prefill_steps: count: engine steps in which it was in a prefill
    decode_steps: count: engine steps in which it decoded
    device_time: ns: its share of its steps' kernels, copies and sets: a step's time is split between prefill
        and decode by their tokens, among prefills by their prompts, among decodes equally; all rows of a
        process add up to all of it
    time: ns: its share of the engine's time, as in serving_phases(), split in the same way
    reason: text: why a value is null, or what the row is of
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "serving_requests()",
            "one row per process with engine steps and request of the log, the most device time first",
            tuple(_COLUMNS),
        ),
    ),
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="serving_requests",
            title="Requests",
            empty=EMPTY,
            shown="process id ttft tpot queue prefill decode prompt_tokens output_tokens "
            "decode_steps device_time time reason",
            forms=[
                Column("ttft", "first token", units.time),
                Column("tpot", "a token", units.time),
                Column("queue", "queued", units.time),
                Column("prefill", "prefill", units.time),
                Column("decode", "decode", units.time),
                Column("prompt_tokens", "prompt"),
                Column("output_tokens", "tokens"),
                Column("device_time", "device time", units.time),
                Column("time", "engine time", units.time),
            ],
            table=_table,
            sums="device_time time",
            written=False,
        ),
    ),
)
