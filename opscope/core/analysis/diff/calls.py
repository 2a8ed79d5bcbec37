"""Describe in words the ops that only one run calls, or that one calls more often than the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.analysis.diff.judged import GONE, NEW
from opscope.core.question import units

#: A part of a layer's path that is only a number.
_NUMBER: Final = re.compile(r"(?<![^./:\[(])\d+(?![^./:\])])")


@dataclass(frozen=True, slots=True)
class Called:
    """How often an op is called in all layers that differ only by number; the layers and the source lines,
    both ordered by calls."""

    calls: int
    layers: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def called(totals: pl.DataFrame) -> dict[str, Called]:
    """Return how often each op of ``op_totals`` is called, by its name, direction and layer in one text.

    Numbers in a layer's path are written ``*``, so that 48 equal layers have the lines of one layer.
    """
    rows = totals.select(
        pl.col("op", "direction", "layer").cast(pl.String),
        pl.col("source").cast(pl.String).str.split(" < ").list.first(),
        "calls",
    )
    gathered: dict[str, tuple[dict[str, int], dict[str, int], int]] = {}
    for op, direction, layer, line, calls in rows.rows():
        kind = None if layer is None else _NUMBER.sub("*", layer)
        key = " ".join(part for part in (op, direction, kind) if part)
        layers, lines, before = gathered.get(key, ({}, {}, 0))
        if layer is not None:
            layers[layer] = layers.get(layer, 0) + calls
        if line is not None:
            lines[line] = lines.get(line, 0) + calls
        gathered[key] = layers, lines, before + calls
    return {
        key: Called(calls, _most(layers), _most(lines))
        for key, (layers, lines, calls) in gathered.items()
    }


def _most(counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def changed(before: Mapping[str, int], now: Mapping[str, Called]) -> Iterator[str]:
    """Yield a line for each op that is new, gone or called more or less often, the largest change first."""
    calls = {
        key: (before.get(key, 0), now[key].calls if key in now else 0) for key in {*before, *now}
    }
    order = sorted(calls, key=lambda key: (-abs(calls[key][1] - calls[key][0]), key))
    for key in order:
        a, b = calls[key]
        words = words_of_calls(key, a, b)
        if words is None:
            continue
        where = "" if not b else _where(now[key])
        yield words + (f": {units.counted(b, 'call')}" if not a else "") + where


def _where(op: Called) -> str:
    named = [*op.layers[:1], *op.lines[:2]]
    return f" ({', '.join(named)})" if named else ""


def words_of_calls(name: str, a: float, b: float, per: str = "", other: float = 0.0) -> str | None:
    """Return in words the change of an op called ``a`` and then ``b`` times: new, gone, or how often now;
    None if the number is the same, up to the relative difference ``other``. ``per``: the unit that these
    calls are counted in."""
    if not a or not b:
        return None if a == b else f"{name} is {GONE if not b else NEW}"
    if abs(b / a - 1) > other:
        return f"{name} is called {b:,.4g} times{per}, before {a:,.4g}"
    return None
