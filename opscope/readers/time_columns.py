"""Read a column of texts as times: seconds, ms, µs or ns since 1970 or any other begin, or ISO 8601."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

#: How many digits after the decimal point are ns, by the end of a column's name.
_UNITS: Final = {"_ns": 0, "_us": 3, "_ms": 6, "_s": 9}
_NUMBER: Final = r"^\s*(\d{1,19})(?:\.(\d+))?\s*$"
_ISO: Final = (
    r"^\s*(\d{4})[-/](\d\d?)[-/](\d\d?)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"
    r"\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?\s*$"
)


def base_name(name: str) -> str:
    """Return a column's name without its unit: ``arrival_ms`` is ``arrival``."""
    return next((name.removesuffix(unit) for unit in _UNITS if name.endswith(unit)), name)


def read_times(texts: pl.Series, beside: Iterable[pl.Series] = ()) -> pl.Series:
    """Return the times (ns) in a column's texts, null for a text without one.

    A number is in the unit at the end of the column's name; without one, the median size of the numbers in it
    and in the columns ``beside`` it gives the unit of all: up to 11 digits before the point are seconds, up
    to 14 ms, up to 17 µs, else ns. ISO 8601 without a zone is UTC.
    """
    table = pl.DataFrame({"text": texts.cast(pl.String)})
    named = next((digits for unit, digits in _UNITS.items() if texts.name.endswith(unit)), None)
    whole = pl.col("text").str.extract(_NUMBER, 1)
    digits = pl.lit(_digits((texts, *beside)) if named is None else named)
    number = _scaled(
        whole.cast(pl.Int64, strict=False), pl.col("text").str.extract(_NUMBER, 2), digits
    )
    group = pl.col("text").str.extract_groups(_ISO).struct
    day = pl.concat_str([group.field(str(n)) for n in (1, 2, 3)], separator="-")
    clock = pl.concat_str([group.field(str(n)) for n in (4, 5, 6)], separator=":")
    moment = pl.concat_str([day, clock], separator=" ").str.to_datetime(
        "%Y-%m-%d %H:%M:%S", strict=False
    )
    zone = group.field("8").str.replace(r"^([+-]\d\d)$", "${1}00")
    minutes = zone.str.slice(1, 2).cast(pl.Int64, strict=False) * 60 + zone.str.slice(-2).cast(
        pl.Int64, strict=False
    )
    east = pl.when(zone.str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    seconds = moment.dt.epoch("s") - east * 60
    written = _scaled(seconds, group.field("7"), pl.lit(9))
    return table.select(pl.coalesce(number, written).alias(texts.name)).to_series()


def _digits(columns: Iterable[pl.Series]) -> int:
    """Return how many digits after the point give ns, by the columns' median: all are in one unit."""
    unnamed = [
        column.cast(pl.String).str.extract(_NUMBER, 1).str.strip_chars_start("0").str.len_chars()
        for column in columns
        if base_name(column.name) == column.name
    ]
    length = pl.concat([each.rename("") for each in unnamed]).drop_nulls().median() or 0
    return next((unit for most, unit in ((11, 9), (14, 6), (17, 3)) if length <= most), 0)


def _scaled(whole: pl.Expr, fraction: pl.Expr, digits: pl.Expr) -> pl.Expr:
    """Return ns: ``whole`` units and their ``fraction`` (digits) as integers, so that no digit is lost."""
    scale = digits.replace_strict({0: 1, 3: 1_000, 6: 1_000_000, 9: 1_000_000_000}, default=None)
    parts = fraction.fill_null("0").str.pad_end(9, "0").str.slice(0, 9).cast(pl.Int64, strict=False)
    fits = whole <= (1 << 62) // scale
    return pl.when(fits).then(whole * scale + parts // (1_000_000_000 // scale))
