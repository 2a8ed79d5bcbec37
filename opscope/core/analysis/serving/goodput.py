"""Goodput: how many requests met their limits, and which engine steps made other requests miss them."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.notes import no_rows
from opscope.core.analysis.serving.requests import EMPTY, request_times, work_windows
from opscope.core.question import lacking, parameters, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.intervals import NONE

_LIMITS = {
    "ttft": parameters.duration("the longest time to the first token; 0: any"),
    "tpot": parameters.duration("the longest time for each token after the first; 0: any"),
}


def judged(requests: pl.DataFrame, ttft: int, tpot: int) -> pl.DataFrame:
    """Return the requests (``request_times``) with ``late`` and ``slow``, whether the first token or the
    others missed the limit (ns; 0: any), and ``good``; null if the log does not show it. A request with a
    single token cannot be slow.
    """
    alone = pl.col("output_tokens") <= 1
    late = pl.col("ttft") > ttft if ttft else pl.lit(False)
    slow = pl.when(alone).then(False).otherwise(pl.col("tpot") > tpot) if tpot else pl.lit(False)
    marked = request_times(requests).with_columns(late.alias("late"), slow.alias("over_tpot"))
    return marked.with_columns((~(pl.col("late") | pl.col("over_tpot"))).alias("good"))


def goodput(profile: Answers, *, ttft: int = 0, tpot: int = 0) -> pl.DataFrame:
    """How many requests in a server's log met the limits, in all and per second."""
    rows = judged(profile.trace["requests"], ttft, tpot)
    if rows.is_empty():
        return no_rows(_GOODPUT)
    window = rows.select(
        pl.coalesce("finished", "first_token", "arrival").max() - pl.col("arrival").min()
    ).item()
    seconds = pl.lit(window / 1e9 if window else None, pl.Float64)

    def share(name: str, part: int) -> pl.Expr:
        at = pl.col(name).quantile(part / 100, "higher")
        return at.round().cast(pl.Int64).alias(f"{name}_p{part}")

    tokens = pl.col("output_tokens").filter(pl.col("good"))
    return rows.select(
        pl.len().cast(pl.Int64).alias("requests"),
        pl.col("good").sum().cast(pl.Int64).alias("good"),
        pl.col("late").sum().cast(pl.Int64).alias("late"),
        pl.col("over_tpot").sum().cast(pl.Int64).alias("over_tpot"),
        pl.col("good").null_count().cast(pl.Int64).alias("untold"),
        (pl.col("good").sum() / (pl.len() - pl.col("good").null_count()))
        .fill_nan(None)
        .alias("good_share"),
        pl.lit(window, pl.Int64).alias("window"),
        (pl.len() / seconds).alias("requests_per_second"),
        pl.when(pl.col("good").null_count() == 0)
        .then(pl.col("good").sum() / seconds)
        .alias("goodput"),
        pl.when((tokens.null_count() == 0) & (pl.col("good").null_count() == 0))
        .then(tokens.sum() / seconds)
        .alias("good_tokens_per_second"),
        *(share(name, part) for name in ("ttft", "tpot") for part in (50, 99)),
    )


def broken(profile: Answers, *, ttft: int = 0, tpot: int = 0) -> pl.DataFrame:
    """Return the engine steps that ran while requests missed the limits.

    For a request whose first token was late: all steps between its arrival and its first token. For a
    request whose later tokens were slow: the steps from its first token to its end that exceed the limit
    per token: a decode step longer than the limit, or a prefill between two decode steps, with all its
    time.
    """
    rows = judged(profile.trace["requests"], ttft, tpot)
    steps = profile.of(work_windows).sort("start")
    late = _overlapping(steps, rows.filter(pl.col("late")), "arrival", "first_token")
    slow = _overlapping(steps, rows.filter(pl.col("over_tpot")), "first_token", "finished")
    decodes = pl.col("kind").is_in(["decode", "mixed", "verify"])
    beyond = (
        pl.when(decodes).then((pl.col("period") - tpot).clip(lower_bound=0)).otherwise("period")
    )
    counted = steps.with_columns(
        pl.Series("late", late, pl.Int64),
        pl.Series("over_tpot", slow, pl.Int64),
        beyond.alias("beyond"),
    ).with_columns(pl.when(pl.col("beyond") > 0).then("over_tpot").otherwise(0).alias("over_tpot"))
    held = pl.col("late") * pl.col("period") + pl.col("over_tpot") * pl.col("beyond")
    table = counted.with_columns(held.alias("request_time")).filter(
        (pl.col("late") > 0) | (pl.col("over_tpot") > 0)
    )
    return table.sort("request_time", "process", "step", descending=[True, False, False]).select(
        *(column.name for column in _BROKEN)
    )


def _overlapping(steps: pl.DataFrame, rows: pl.DataFrame, since: str, until: str) -> pl.Series:
    """Return for each step (by begin) how many rows ended after its begin and began before the next step."""
    begun = rows[since].drop_nulls().sort()
    ended = rows[until].drop_nulls().sort()
    before = begun.search_sorted(steps["next"].fill_null(NONE), "left")
    over = ended.search_sorted(steps["start"], "right")
    count: pl.Series = before.cast(pl.Int64) - over.cast(pl.Int64)
    return count


_GOODPUT = columns(
    "requests good late over_tpot untold good_share window requests_per_second goodput "
    "good_tokens_per_second ttft_p50 ttft_p99 tpot_p50 tpot_p99",
    """
    requests: count: requests of the log
    good: count: requests that kept all limits
    late: count: requests whose first token came later than ttft
    over_tpot: count: requests whose tokens after the first took longer than tpot each
    untold: count: requests of which the log does not tell whether they kept the limits
    good_share: fraction: good of those of which the log tells
    window: ns: from the first arrival to the last end
    requests_per_second: 1/s: requests in the window
    goodput: 1/s: good in the window; null if not all are told
    good_tokens_per_second: 1/s: tokens of good requests in the window
    ttft_p50: ns: median time from a request's arrival to its first token
    ttft_p99: ns: 99th percentile of it
    tpot_p50: ns: median time for each token after the first
    tpot_p99: ns: 99th percentile of it
    """,
)
_BROKEN = columns(
    "process rank step kind start period requests prefill_tokens late over_tpot beyond request_time",
    """
    step: number: its number, by begin, from 0 in each process
    kind: text: prefill, decode, mixed, verify, draft, idle
    period: ns: time from its begin to the next one's
    requests: count: requests in the batch
    prefill_tokens: count: prompt tokens that it computed; null if not told
    late: count: requests with a late first token that waited for it then
    over_tpot: count: requests whose tokens were too slow, and that this step held up
    beyond: ns: its period beyond the limit of a token; of a step that does not decode all of it
    request_time: ns: period for each late request, and beyond for each slow one, added up
    """,
)
QUESTION = (
    Question(
        answer=goodput,
        frames=(
            Frame("serving_goodput()", "one row, if a log of requests was given", tuple(_GOODPUT)),
        ),
        parameters=_LIMITS,
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="serving_goodput",
                title="Requests that kept ttft {ttft} and tpot {tpot} (0 ns: any)",
                empty=EMPTY,
                shown="requests good good_share late over_tpot untold goodput good_tokens_per_second "
                "ttft_p50 ttft_p99 tpot_p50 tpot_p99",
                forms=[
                    Column("good_share", "share", units.share),
                    Column("goodput", "good a second", units.ratio),
                    Column("good_tokens_per_second", "their tokens a second", units.ratio),
                    *(
                        Column(f"{name}_p{part}", f"{name} p{part}", units.time)
                        for name in ("ttft", "tpot")
                        for part in (50, 99)
                    ),
                ],
                sums="",
                written=False,
            ),
        ),
    ),
    Question(
        answer=broken,
        frames=(
            Frame(
                "serving_slo_steps()",
                "one row per engine step that ran while requests missed the limits, the longest first",
                tuple(_BROKEN),
            ),
        ),
        parameters=_LIMITS,
        merged=lacking.PATTERNS,
        reports=(
            Report(
                name="serving_slo_steps",
                title="Steps that broke ttft {ttft} or tpot {tpot} (0 ns: any)",
                empty="no engine step ran while a request missed the limits, or no limit or log of "
                "requests was given",
                forms=[
                    Column("period", "a step", units.time),
                    Column("beyond", "beyond", units.time),
                    Column("request_time", "x requests", units.time),
                ],
                sums="",
                written=False,
            ),
        ),
    ),
)
