"""The cost of a server's tokens: the energy and the price of each kind of engine step, and of each token.
|| Power is interpolated linearly between samples. A step's energy is that from the begin of its work on
the device to the begin of the next step's work. It is counted in nJ as differences of one rounded
cumulative sum, so the steps add up to the total. The price is the engine's time by kind of step, as in
``serving_phases``, times its GPUs, in units of 1e-9.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.serving.notes import no_rows
from opscope.core.analysis.serving.phases import EMPTY
from opscope.core.analysis.serving.requests import work_windows
from opscope.core.analysis.serving.shares import split
from opscope.core.analysis.serving.tokens import VERIFIED, VERIFIES
from opscope.core.attribution.served_steps import are_alike
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.parameters import Parameter
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import GPU_ENERGY, GPU_POWER
from opscope.core.tables.intervals import Ints

ALL: Final = "all"
NO_POWER: Final = "no energy or power was sampled in its steps: --power FILE gives samples"
UNTOLD: Final = "the names of some steps do not tell their tokens"
#: Larger energies (nJ) and prices than these would not fit in 64 bits.
_MOST_JOULES: Final = 1e9
_HOUR: Final = 3.6e12
_PRICE: Final = re.compile(r"\D{0,3}?(\d{1,6}(?:\.\d{1,9})?)\s*(?:/\s*h(?:our)?)?")


def _price() -> Parameter:
    accepts = "a price of an hour such as 2.49/h"

    def read(given: object) -> float:
        if isinstance(given, str) and (matched := _PRICE.fullmatch(given.strip())):
            given = float(matched[1])
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < 1e6:
            raise ValueError(f"{accepts}, not {str(given)[:80]!r}")
        return float(given)

    return Parameter(
        "what an hour of each GPU costs; 0: not told",
        accepts,
        read,
        written=lambda value: f"{value:g}/h" if value else "not told",
    )


def step_energies(profile: Answers) -> pl.DataFrame:
    """The energy (nJ) of each engine step that was sampled completely: ``row``, ``energy``."""
    steps = profile.of(work_windows)
    samples = profile.trace["samples"].filter(
        pl.col("value").is_not_null() & pl.col("device").is_not_null()
    )
    parts = [pl.DataFrame(schema={"row": pl.Int64, "energy": pl.Int64})]
    for (process,), mine in steps.group_by("process", maintain_order=True):
        begun = np.maximum.accumulate(mine["began"].to_numpy())
        edges = np.append(begun, max(int(begun[-1]), int(mine["ended"].to_numpy().max())))
        curves = []
        for _, part in samples.filter(pl.col("process") == process).group_by(
            "device", maintain_order=True
        ):
            by_name = {
                name: part.filter(pl.col("name").cast(pl.String) == name)
                .unique("time")
                .sort("time")
                for name in (GPU_ENERGY, GPU_POWER)
            }
            name = GPU_ENERGY if len(by_name[GPU_ENERGY]) > 1 else GPU_POWER
            if len(by_name[name]) > 1:
                time, value = (by_name[name][key].to_numpy() for key in ("time", "value"))
                curves.append(_energy(time, value, edges, name == GPU_POWER))
        if curves:
            total = np.sum(curves, axis=0)
            known = np.isfinite(total) & (total < _MOST_JOULES)
            nano = np.rint(np.where(known, total, 0) * 1e9).astype(np.int64)
            inside = np.flatnonzero(known[:-1] & known[1:])
            parts.append(
                pl.DataFrame(
                    {"row": mine["row"].to_numpy()[inside], "energy": np.diff(nano)[inside]}
                )
            )
    return pl.concat(parts)


def _energy(
    time: Ints, value: NDArray[np.float64], at: Ints, is_power: bool
) -> NDArray[np.float64]:
    """Return the energy (J) from the first sample to each time of ``at``; NaN outside the samples."""
    lasted = np.diff(time) / 1e9
    if is_power:
        rises = (value[1:] + value[:-1]) / 2 * lasted
    else:  # a restarted driver counts from 0
        rises = np.where(np.diff(value) >= 0, np.diff(value), value[1:])
    total = np.append(0.0, np.cumsum(rises))
    index = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
    since = (at - time[index]) / 1e9
    if is_power:
        slope = (value[index + 1] - value[index]) / lasted[index]
        energy = total[index] + value[index] * since + slope * since**2 / 2
    else:
        energy = total[index] + rises[index] * since / lasted[index]
    inside = (at >= time[0]) & (at <= time[-1])
    return np.where(inside, energy, np.nan)


def costs(profile: Answers, price: float) -> pl.DataFrame:
    """Return a row for all engine steps, then one per kind, the most time first."""
    steps = profile.of(work_windows).join(profile.of(step_energies), on="row", how="left")
    if steps.is_empty():
        return no_rows(_COLUMNS)
    used = (
        profile.trace["kernels"].group_by("process").agg(pl.col("device").n_unique().alias("gpus"))
    )
    steps = steps.join(used, on="process", how="left").with_columns(
        pl.max_horizontal(pl.col("gpus").cast(pl.Int64).fill_null(1), 1),
        # ranks of one engine compute the same tokens
        (pl.lit(not are_alike(steps)) | (pl.col("process") == steps["process"][0])).alias("counts"),
    )
    decodes = pl.col("kind").is_in(["decode", "verify"])
    idles = pl.when(pl.col("kind").is_in(["idle", "draft"])).then(0)
    of_kind = idles.when(decodes).then("output_tokens").otherwise("new_tokens")
    of_all = idles.when(pl.col("kind") == "prefill").then(0).otherwise("output_tokens")
    kinds = _sums(steps, pl.col("kind"), of_kind).sort("time", "kind", descending=[True, False])
    every = _sums(steps, pl.lit(ALL), of_all)
    total = round(price * int(every["gpu_time"].item()) / _HOUR * 1e9)
    parts = split(np.array([total]), np.zeros(len(kinds), np.int64), kinds["gpu_time"].to_numpy())
    money = pl.Series("cost", [total, *parts.tolist()], pl.Int64) / 1e9
    table = pl.concat([every, kinds]).with_columns(
        money if price else pl.lit(None, pl.Float64).alias("cost"),
        pl.when(pl.col("sampled_steps") > 0).then(pl.col("energy") / 1e9).alias("energy"),
    )
    untold = pl.when(pl.col("verified")).then(pl.lit(VERIFIED)).otherwise(pl.lit(UNTOLD))
    return table.with_columns(
        (pl.col("energy") / pl.col("sampled_tokens").replace(0, None)).alias("token_energy"),
        # not of the rounded cost: a short profile costs little
        pl.when(pl.col("cost").is_not_null())
        .then(price * pl.col("gpu_time") / _HOUR / pl.col("tokens").replace(0, None) * 1e6)
        .alias("million_cost"),
        pl.when(pl.col("tokens").is_null())
        .then(untold)
        .when(pl.col("sampled_steps") == 0)
        .then(pl.lit(NO_POWER))
        .alias("reason"),
    ).select(*(column.name for column in _COLUMNS))


def _sums(steps: pl.DataFrame, kind: pl.Expr, tokens: pl.Expr) -> pl.DataFrame:
    """Return the sums of the steps of each ``kind``, and their ``tokens``: null if unknown for any step."""
    counts, sampled = pl.col("counts"), pl.col("energy").is_not_null()

    def known(which: pl.Expr) -> pl.Expr:
        kept = pl.col("own").filter(which)
        return pl.when(kept.null_count() == 0).then(kept.sum())

    return (
        steps.with_columns(tokens.alias("own"), VERIFIES.fill_null(False).alias("verifies"))
        .group_by(kind.alias("kind"), maintain_order=True)
        .agg(
            counts.sum().cast(pl.Int64).alias("steps"),
            pl.col("time").sum(),
            (pl.col("time") * pl.col("gpus")).sum().alias("gpu_time"),
            known(counts).alias("tokens"),
            (counts & sampled).sum().cast(pl.Int64).alias("sampled_steps"),
            pl.col("energy").sum(),
            known(counts & sampled).alias("sampled_tokens"),
            pl.col("verifies").any().alias("verified"),
        )
    )


def answer(profile: Answers, *, price: float = 0.0) -> pl.DataFrame:
    """The energy and the price of a server's engine by kind of step, in all and per token."""
    return costs(profile, price)


_COLUMNS = columns(
    "kind steps time gpu_time tokens sampled_steps energy token_energy cost million_cost reason",
    """
    kind: text: kind of the steps; all: the sum of the kinds
    steps: count: engine steps; those of the ranks of one engine count once
    time: ns: time of the engine that is these steps', as in serving_phases(), of all processes
    gpu_time: ns: the same times the GPUs of each process
    tokens: count: tokens out of steps that decode, tokens in of prefills, both of mixed ones; in all: out
    sampled_steps: count: steps all of which was sampled
    energy: J: energy that the GPUs took in the sampled steps, each from the begin of its work to that of the
        next one's; the kinds add up to all
    token_energy: J: energy for each token of the sampled steps
    cost: value: price times gpu_time; the kinds add up to all, to 1e-9
    million_cost: value: cost of a million tokens
    reason: text: why a value is null
    """,
)

QUESTION = Question(
    answer=answer,
    frames=(
        Frame("serving_costs()", "one row for all engine steps, and one per kind", tuple(_COLUMNS)),
    ),
    parameters={"price": _price()},
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="serving_costs",
            title="Energy and cost of engine steps (an hour of a GPU: {price})",
            empty=EMPTY,
            shown="kind steps time tokens energy token_energy cost million_cost reason",
            forms=[
                Column("time", "time", units.time),
                Column("energy", "energy [J]", units.ratio),
                Column("token_energy", "J/token", units.ratio),
                Column("cost", "cost", units.ratio),
                Column("million_cost", "a million tokens", units.ratio),
            ],
            sums="",
            written=False,
        ),
    ),
)
