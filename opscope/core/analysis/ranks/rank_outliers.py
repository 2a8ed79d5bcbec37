"""Ranks that differ from the others by robust statistics: time of equal kernels, clocks, temperature."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ranks.rank_names import rank_names
from opscope.core.job.exchanges import communicating
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns

#: A rank is an outlier beyond this modified z-score (Iglewicz and Hoaglin, 1993) …
SCORE: Final = 3.5
#: … and at least this far from the median: smaller differences do not matter, however alike the others are.
SHARE: Final = 0.02
#: With fewer ranks, no rank is judged: half of the ranks may be the outliers.
LEAST: Final = 4
#: A kernel is compared if a rank ran it this often.
_RUNS: Final = 3
KERNEL: Final = "kernel time"
FEW: Final = f"fewer than {LEAST} ranks have it"
OUTLIERS: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "rank": pl.Int32,
    "measure": pl.String,
    "value": pl.Float64,
    "typical": pl.Float64,
    "relative": pl.Float64,
    "z_score": pl.Float64,
    "compared": pl.Int64,
    "outlier": pl.Boolean,
    "reason": pl.String,
}
_SAMPLED: Final = r"(?i)temp|clock|power|frequency"
_KEY: Final = ["name", "grid", "block"]


def kernel_speeds(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, device and kernel of equal name, grid and block that ran three times or
    more: ``median`` duration (ns) and ``runs``. It needs only the rank's own trace, and is small."""
    return (
        kernels.drop_nulls(["start", "end", "name"])
        .group_by("process", "device", pl.col("name").cast(pl.String), "grid", "block")
        .agg(
            (pl.col("end") - pl.col("start")).median().alias("median"),
            pl.len().cast(pl.Int64).alias("runs"),
        )
        .filter(pl.col("runs") >= _RUNS)
        .sort("process", "device", *_KEY)
    )


def sampled(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, device and measure that was sampled: temperatures, clocks, power; with
    ``value``, its median."""
    named = samples.with_columns(pl.col("name").cast(pl.String).alias("measure"))
    return (
        named.filter(pl.col("measure").str.contains(_SAMPLED).fill_null(False))
        .drop_nulls("value")
        .group_by("process", "device", "measure")
        .agg(pl.col("value").cast(pl.Float64).median())
        .sort("process", "device", "measure")
    )


def rank_outliers(
    speeds: pl.DataFrame, measured: pl.DataFrame, ranks: pl.DataFrame
) -> pl.DataFrame:
    """Return one row per process, device and measure (``OUTLIERS``), outliers first.

    ``kernel time``: a kernel's median time on the rank / its median on all ranks, averaged over the kernels
    that most ranks ran in common, weighted by their time; 1.1 is a tenth slower. ``speeds`` and ``measured``
    are ``kernel_speeds`` and ``sampled`` of all ranks, concatenated; ``ranks``: process and rank. ``outlier``
    is null, with a ``reason``, where fewer than four ranks are compared.
    """
    owner = ["process", "device"]
    rank_count = speeds.select(owner).n_unique()
    alike = speeds.with_columns(
        pl.len().over(_KEY).alias("ranks"), pl.col("median").median().over(_KEY).alias("middle")
    ).filter((2 * pl.col("ranks") > rank_count) & (pl.col("ranks") > 1) & (pl.col("middle") > 0))
    weight = pl.col("middle") * pl.col("runs").median().over(_KEY)
    ratio = pl.col("median") / pl.col("middle")
    speed = (
        alike.with_columns(weight.alias("weight"), ratio.alias("ratio"))
        .group_by(owner)
        .agg(
            pl.lit(KERNEL).alias("measure"),
            ((pl.col("ratio") * pl.col("weight")).sum() / pl.col("weight").sum()).alias("value"),
        )
    )
    rows = pl.concat(
        [speed.select(*owner, "measure", "value"), measured.select(*owner, "measure", "value")]
    )
    if rows.is_empty():
        return pl.DataFrame(schema=OUTLIERS)
    value, middle = pl.col("value"), pl.col("typical")
    rows = rows.with_columns(
        value.median().over("measure").alias("typical"), pl.len().over("measure").alias("compared")
    ).with_columns((value - middle).alias("off"))
    mad = pl.col("off").abs().median().over("measure")
    enough = pl.col("compared") >= LEAST
    # if most values are equal to the last digit, any distance is infinitely many deviations: the share
    # decides
    score = pl.when(mad > 0).then(0.6745 * pl.col("off") / mad)
    far = (score.abs() > SCORE).fill_null(True)
    matters = pl.col("off").abs() > SHARE * middle.abs()
    return (
        rows.with_columns(
            pl.when(middle != 0).then(value / middle).alias("relative"),
            pl.when(enough).then(score).alias("z_score"),
            pl.when(enough).then(far & matters).alias("outlier"),
            pl.when(~enough).then(pl.lit(FEW)).alias("reason"),
        )
        .join(ranks.unique("process", keep="first"), on="process", how="left")
        .cast(dict(OUTLIERS.items()))
        .sort(
            "outlier", (pl.col("relative") - 1).abs(), "measure", *owner,
            descending=[True, True, False, False, False], nulls_last=True,
        )
        .select(*OUTLIERS)
    )  # fmt: skip


def speeds_of_kernels(profile: Answers) -> pl.DataFrame:
    """The times of equal kernels, by process, except kernels of collectives, whose times include waiting."""
    talks = communicating(profile.attribution)
    columns = ["process", "device", "name", "grid", "block", "start", "end"]
    kernels = profile.trace["kernels"].select(columns)
    return kernel_speeds(kernels.filter(pl.Series(~talks, dtype=pl.Boolean)))


def sample_medians(profile: Answers) -> pl.DataFrame:
    """The medians of the sampled measures of each device."""
    return sampled(profile.trace["samples"])


def answer(profile: Answers) -> pl.DataFrame:
    """Ranks that are unlike the others, by median and median absolute deviation.

    The times of equal kernels (name, grid, block), and the sampled clocks, temperatures and power are
    compared. Fewer than four ranks are not judged.
    """
    speeds, samples = profile.of(speeds_of_kernels), profile.of(sample_medians)
    return rank_outliers(speeds, samples, profile.of(rank_names))


def _measure(value: object) -> str:
    """Return a ratio with four digits; a clock rate or a power as a whole number if that has more digits."""
    if not isinstance(value, float):
        return units.UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "rank_outliers()",
            "one row per process, device and measure; outliers first",
            columns(
                "process device rank measure value typical relative z_score compared "
                "outlier reason",
                """
                measure: text: kernel time, or the name of what was sampled
                value: value: kernel time: relative to the median of all ranks; of a sample its median
                typical: value: median of the value over the ranks
                relative: fraction: value / typical
                z_score: value: distance from the median in robust standard deviations (0.6745 · distance
                    / MAD); null if most values are equal or too few are known
                compared: count: ranks (processes and devices) that have the measure
                outlier: yes/no: whether the modified z-score is above 3.5 and it is 2 % from the median;
                    null for fewer than four ranks
                reason: text: why it is not judged
                """,
            ),
        ),
    ),
    reports=(
        Report(
            name="rank_outliers",
            title="Ranks unlike the others",
            empty="no kernel that several ranks ran, and no clock, temperature or power that was sampled",
            forms=[
                Column(name, name.replace("_", " "), _measure)
                for name in ("value", "typical", "z_score")
            ],
        ),
    ),
)
