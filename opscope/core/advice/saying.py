"""Words and values that detectors share: times and shares in words, the places of some work, the user's
framework."""

from __future__ import annotations

from itertools import islice
from typing import Final

import polars as pl

from opscope.core.advice.finding import Answers
from opscope.core.advice.rest import with_rest

#: The beginnings of the names of a framework's ops.
_PREFIXES: Final = {"aten::": "torch", "torch.": "torch", "autograd::": "torch"}
_SHOWN: Final = 3
#: The number of calls whose names are searched for the framework.
_LOOKED_AT: Final = 200


def ms(time: float) -> str:
    """Return a time (ns) in words: ``1,234.5 ms``; in µs if that would be 0.0 ms, in s from 10 s on."""
    if time >= 1e10:
        return f"{time / 1e9:,.1f} s"
    if 0 < time < 5e4:
        return f"{time / 1e3:,.1f} µs"
    return f"{time / 1e6:,.1f} ms"


def share(part: float, total: float) -> str:
    """Return a share in words: ``12.3 %``; if the whole is 0, ``an unknown share``."""
    return f"{100 * part / total:.1f} %" if total else "an unknown share"


def places(rows: pl.DataFrame, noun: str, time: str = "duration") -> str:
    """Return the places with most of the time: the source line, else the layer, else the op. ``noun``: the
    name of a row, in the plural. ``time``: the column that is summed (ns)."""
    location = pl.coalesce(
        pl.col("source", "layer", "op").cast(pl.String), pl.lit("outside any op")
    )
    by = (
        rows.group_by(location.alias("place"))
        .agg(pl.len(), pl.col(time).sum())
        .sort(time, "place", descending=[True, False])
    )
    said = [
        f"{name} ({count:,} {noun}, {ms(took)})" for name, count, took in by.head(_SHOWN).rows()
    ]
    more = len(by) - _SHOWN
    return "; ".join(said) + (f"; and {more:,} other places" if more > 0 else "")


def evidence(rows: pl.DataFrame, time: str = "duration", most: int = 20) -> pl.DataFrame:
    """Return the rows of a finding's evidence: equal places together, those with most time first. ``rows``
    are of ``kernels()``, ``memops()`` or ``ops()``; ``op_id``: the op of the place's longest row."""
    location = [
        name
        for name in ("op", "direction", "layer", "source", "inputs", "dtypes")
        if name in rows.columns
    ]
    longest = [pl.col("op_id").sort_by(time).last()] if "op_id" in rows.columns else []
    grouped = (
        rows.group_by(location, maintain_order=True)
        .agg(pl.len().alias("count"), pl.col(time).sum().alias("time"), *longest)
        .sort("time", descending=True, maintain_order=True)
    )
    return with_rest(grouped, most)


def framework(answers: Answers) -> str | None:
    """Return the framework whose ops the trace has (``torch``, ``tensorflow`` …); None if it has several or
    none."""
    processes = answers.trace["processes"]
    names = set()
    if "framework" in processes.columns:
        names = set(map(_plain, processes["framework"].cast(pl.String).drop_nulls()))
    if not names:
        # not op_totals(): it would keep the sums of all ops
        calls = (
            reading.call
            for reading in answers.attribution.meaning.readings
            if reading.call is not None
        )
        for call in islice(calls, _LOOKED_AT):
            names |= {
                framework_name
                for start, framework_name in _PREFIXES.items()
                if call.name.startswith(start)
            }
    return names.pop() if len(names) == 1 else None


def _plain(name: str) -> str:
    """Return the name of a framework as ops have it: ``torch`` for ``PyTorch 1.10.1+cu102``."""
    word = name.lower().partition(" ")[0]
    return "torch" if word == "pytorch" else word
