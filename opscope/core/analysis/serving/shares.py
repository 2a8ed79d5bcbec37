"""The requests in each engine step, and the share of each in its time, divided by tokens, exact to the ns.
Traces do not name the requests of a step. If a step records the number of its requests, it gets those whose
time to prefill (from arrival to first token) or to decode (from first token to end) overlaps its work most;
among equals, those with the earliest first token. If it does not record the number, it gets all requests
whose time covers half of the step. Requests in a step that are not in the log form an additional row, without
a request.

A step's time is split between prefill and decode by their tokens; prefill among requests by the length of
each prompt over the steps of its prefill (its mean chunk), decode equally. Where a name counts the running
requests but not their tokens, those of them that the log shows before their first token are in a chunk of
their prefill. Each split is in whole ns: parts are rounded down, and the remainder goes to
the largest fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from opscope.core.dialects.serving import VLLM
from opscope.core.question.parameters import WrongParameter
from opscope.core.tables.intervals import NONE, Ints

#: Pairs of a step and a request that are in memory at a time, and the most pairs in all.
_PAIRS: Final = 2_000_000
MOST_PAIRS: Final = 1_000_000_000
#: Largest sum of the weights of a step, so that no product exceeds 64 bits.
_HEAVIEST: Final = 1 << 31
_FAR: Final = 1 << 62
#: The kinds of steps which, if they record nothing about a phase, contain none of it.
_NOT_IN: Final = {"prefill": ("decode", "verify", "draft", "idle"), "decode": ("prefill", "idle")}
#: Step and request of each pair, and for each step its number of requests (-1: unknown).
_Members: TypeAlias = "tuple[Ints, Ints, Ints]"
#: A row per step and request in it; ``request`` is its place, -1 for those that the log lacks.
SHARES: Final = {
    "row": pl.Int64,
    "request": pl.Int64,
    "phase": pl.Int64,
    "device_time": pl.Int64,
    "time": pl.Int64,
}


def split(amounts: Ints, of: Ints, weights: Ints) -> Ints:
    """Return the part of ``amounts[of]`` that each row gets by its weight: whole numbers that add up to the
    amount.

    If all weights of a group are 0, its rows get equal parts. Every group with an amount needs a row.
    """
    weights = np.clip(weights, 0, _FAR >> 22)
    total = _sums(weights, of, len(amounts))
    while (total >= _HEAVIEST).any():
        heavy = total[of] >= _HEAVIEST
        weights = np.where(heavy & (weights > 1), weights // 2, weights)
        total = _sums(weights, of, len(amounts))
    weights = np.where(total[of] == 0, 1, weights)
    total = np.maximum(_sums(weights, of, len(amounts)), 1)
    quotient, rest = np.divmod(amounts, total)
    fraction = rest[of] * weights
    parts: Ints = quotient[of] * weights + fraction // total[of]
    left = amounts - _sums(parts, of, len(amounts))
    order = np.lexsort((-(fraction % total[of]), of))
    place = np.arange(len(of)) - np.searchsorted(of[order], of[order])
    parts[order] += place < left[of[order]]
    return parts


def _sums(values: Ints, of: Ints, count: int) -> Ints:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, of, values)
    return sums


def shares(steps: pl.DataFrame, requests: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of ``SHARES`` of one process, some steps at a time. ``steps``: ``step_sums`` with the
    columns ``began`` and ``ended`` of each step's work; ``requests``: the log's, in order of arrival."""
    logged = _Logged(requests)
    start = steps["start"].to_numpy()
    reach = np.maximum.accumulate(steps["ended"].to_numpy()) if len(steps) else start
    bounds = [
        # a request cannot be in a step that began before it arrived
        (np.searchsorted(start, logged.arrival), np.searchsorted(start, logged.prefilled)),
        (
            np.searchsorted(reach, logged.decodes, side="right"),
            np.searchsorted(start, logged.finished),
        ),
    ]
    pairs = np.zeros(len(steps) + 1, np.int64)
    for low, high in bounds:
        kept = high > low
        np.add.at(pairs, low[kept], 1)
        np.add.at(pairs, high[kept], -1)
    until = np.cumsum(np.cumsum(pairs[:-1]) + 1)
    if len(until) and until[-1] > MOST_PAIRS:
        raise WrongParameter(
            "serving_requests: too many requests at once in too many steps; select some steps"
        )
    # when the last step with new requests began: who arrived later runs in no chunk yet
    entered = pl.when(pl.col("prefill_requests") > 0).then("start").forward_fill()
    steps = steps.with_columns(entered.fill_null(pl.col("start").first()).alias("entered"))

    def parts() -> Iterator[tuple[pl.DataFrame, list[_Members]]]:
        begin = 0
        while begin < len(steps):
            before = until[begin - 1] if begin else 0
            end = max(int(np.searchsorted(until, before + _PAIRS)), begin + 1)
            part = [(np.clip(low, begin, end) - begin, np.clip(high, begin, end) - begin)
                    for low, high in bounds]  # fmt: skip
            yield steps[begin:end], _in_phases(steps[begin:end], logged, part)
            begin = end

    chunks = np.zeros(len(requests), np.int64)
    for _, ((_, request, _), _) in parts():
        chunks += np.bincount(request, minlength=len(requests))
    logged.prompt = np.where(logged.prompt < 0, NONE, logged.prompt // np.maximum(chunks, 1))
    for part, members in parts():
        yield _of_steps(part, members, logged)


class _Logged:
    """When each of the log's requests may prefill and decode (ns), and its prompt's tokens (-1: unknown),
    in the end those of its mean chunk.

    Without a first token, all of its time counts for both; without an end, it decodes in no step.
    """

    def __init__(self, requests: pl.DataFrame) -> None:
        table = requests.select(
            "arrival",
            pl.coalesce("first_token", "finished").alias("prefilled"),
            pl.coalesce("first_token", "arrival").alias("decodes"),
            "finished",
            "prompt_tokens",
        ).fill_null(NONE)
        self.arrival, self.prefilled, self.decodes, self.finished, self.prompt = (
            table[name].cast(pl.Int64).to_numpy() for name in table.columns
        )


def _in_phases(
    steps: pl.DataFrame, logged: _Logged, bounds: list[tuple[Ints, Ints]]
) -> list[_Members]:
    """Return the requests of some steps in prefill and in decode. ``bounds``: for each phase the first step
    of each request, and the step after its last."""
    (low, high), (since, until) = bounds
    entering, running = (_had(steps, phase) for phase in _NOT_IN)
    step, request, _ = decodes = _members(steps, "decode", logged, since, until, running)
    present = np.bincount(step, minlength=len(steps))
    # in vLLM's names without tokens, a request that runs may be in a chunk of its prefill
    untold = (steps["source"] == VLLM) & steps["decode_tokens"].is_null()
    doubtful = untold.fill_null(False).to_numpy() & (running > 0) & (entering >= 0)
    free = np.where(doubtful, np.maximum(running - present, 0), 0)
    latest = np.where(free > 0, steps["entered"].to_numpy(), _FAR)
    step, request, _ = _members(steps, "prefill", logged, low, high, entering + free, latest)
    chunks = np.where(free, np.bincount(step, minlength=len(steps)) - entering, 0).clip(0)
    return [(step, request, entering + chunks), (*decodes[:2], running - chunks)]


def _had(steps: pl.DataFrame, phase: str) -> Ints:
    """Return for each step its number of requests in a phase (-1: unknown)."""
    requests = pl.when(pl.col("kind").is_in(_NOT_IN[phase])).then(0).otherwise(f"{phase}_requests")
    return steps.select(requests.fill_null(NONE).cast(pl.Int64)).to_series().to_numpy()


def _of_steps(steps: pl.DataFrame, members: list[_Members], logged: _Logged) -> pl.DataFrame:
    """Return ``SHARES`` of some steps with these requests."""
    count = len(steps)
    phases = [_weights(steps, phase, count, *members[n], logged) for n, phase in enumerate(_NOT_IN)]
    # the first split: between the phases, by their tokens
    in_step = np.concatenate((np.arange(count), np.arange(count)))
    of_phase = np.concatenate([total for *_, total in phases])
    step = np.concatenate([row for row, *_ in phases])
    request = np.concatenate([which for _, which, *_ in phases])
    weight = np.concatenate([weight for _, _, weight, _ in phases])
    phase = np.repeat(np.arange(2), [len(row) for row, *_ in phases])
    parts = {}
    for name in ("device_time", "time"):
        amounts = steps[name].fill_null(0).to_numpy()
        halves = split(amounts, in_step, of_phase)
        parts[name] = split(halves, step + phase * count, weight)
    rows = steps["row"].to_numpy()[step]
    table = pl.DataFrame({"row": rows, "request": request, "phase": phase, **parts}, schema=SHARES)
    return table.filter(
        (pl.col("request") >= 0) | (pl.col("time") > 0) | (pl.col("device_time") > 0)
    )


def _members(
    steps: pl.DataFrame,
    phase: str,
    logged: _Logged,
    low: Ints,
    high: Ints,
    had: Ints,
    latest: Ints | None = None,
) -> _Members:
    """Return step and request of each pair in a phase, and ``had``. ``latest``: for each step when (ns) its
    requests had arrived."""
    length = np.maximum(high - low, 0)
    request = np.repeat(np.arange(len(low)), length)
    step = np.arange(len(request)) - np.repeat(np.cumsum(length) - length - low, length)
    began, ended = (steps[name].to_numpy()[step] for name in ("began", "ended"))
    since, until = (
        (logged.arrival, logged.prefilled)
        if phase == "prefill"
        else (logged.decodes, logged.finished)
    )
    overlap = np.minimum(ended, until[request]) - np.maximum(began, since[request])
    most = np.where(had[step] >= 0, 1, (ended - began + 1) // 2)
    kept = (overlap >= np.maximum(most, 1)) & (had[step] != 0)
    if latest is not None:
        kept &= logged.arrival[request] <= latest[step]
    step, request, overlap = step[kept], request[kept], overlap[kept]
    order = np.lexsort((request, logged.prefilled[request], -overlap, step))
    step, request = step[order], request[order]
    place = np.arange(len(step)) - np.searchsorted(step, step)
    within = (had[step] < 0) | (place < had[step])
    return step[within], request[within], had


def _weights(
    steps: pl.DataFrame,
    phase: str,
    count: int,
    step: Ints,
    request: Ints,
    had: Ints,
    logged: _Logged,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return step, request (-1: requests that the log lacks) and weight of each row of a phase, and for each
    step the weight of the whole phase: its tokens, else the tokens expected from its requests."""
    present = np.bincount(step, minlength=count).astype(np.int64)
    lacking = np.maximum(had - present, 0)
    own = np.ones(len(step), np.int64)
    if phase == "prefill":
        prompt = logged.prompt[request]
        untold = np.bincount(step[prompt < 0], minlength=count) > 0
        own = np.where(untold[step], 1, np.maximum(prompt, 1))
    sums = _sums(own, step, count)
    mean = np.maximum(sums // np.maximum(present, 1), 1)
    expected = sums + mean * lacking
    told = steps[f"{phase}_tokens"].fill_null(NONE).to_numpy()
    rest = np.flatnonzero((lacking > 0) | (present == 0))
    return (
        np.concatenate((step, rest)),
        np.concatenate((request, np.full(len(rest), NONE, np.int64))),
        np.concatenate((own, mean[rest] * np.maximum(lacking[rest], 1))),
        np.where(told > 0, told, expected),
    )
