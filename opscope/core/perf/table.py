"""Compute the costs of many distinct calls as one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from opscope.core import progress
from opscope.core.schema import OpCall

from . import tensorcore
from .api import cost, entry_of
from .registry import Cost
from .shapes import tensors

SCHEMA = {
    "family": pl.String,
    "view": pl.Boolean,
    "matrix_flops": pl.Int64,
    "vector_flops": pl.Int64,
    "flops": pl.Int64,
    "masked_flops": pl.Int64,
    "bytes_read": pl.Int64,
    "bytes_written": pl.Int64,
    "bytes": pl.Int64,
    "flops_by_dtype": pl.String,
    "dtype": pl.String,
    "reason": pl.String,
    "bytes_reason": pl.String,
    "note": pl.String,
    "tc_eligible": pl.Boolean,
    "tc_ready": pl.Boolean,
    "tc_reason": pl.String,
    "tc_unused": pl.String,
}
#: Calls that are priced between two updates of the progress display.
_TOLD: Final = 256


def columns(
    calls: Sequence[OpCall],
    forwards: Sequence[OpCall | None] | None = None,
    target: tensorcore.Target | None = None,
) -> pl.DataFrame:
    """Return one row per call, in order; pass each distinct call once, and join the rows to the calls' uses.

    ``forwards`` holds the forward op's call, or None, for each call; ``target``: the device of the calls, for
    ``tc_ready``. Unknown FLOPs are null with a ``reason``; bytes alone may be null, with a ``bytes_reason``.
    ``flops_by_dtype`` is a JSON object; ``dtype`` is the dtype with the most FLOPs. ``tc_reason`` says what
    prevents the use of Tensor Cores; ``tc_unused`` is the likeliest reason if no kernel of the call is found
    to use them.
    """
    target = target or tensorcore.Target()
    with progress.stage("working out the ops' cost", len(calls), progress.CALLS) as stage:
        rows, places = _rows(calls, forwards, target, stage)
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return table if len(rows) == len(places) else table[places]


def no_work() -> pl.DataFrame:
    """Return the row of a call that did no work, for any shapes."""
    nothing = dict.fromkeys(SCHEMA) | {"view": False, "flops_by_dtype": "{}"}
    numbers = {name: 0 for name, kind in SCHEMA.items() if kind == pl.Int64}
    return pl.DataFrame([nothing | numbers], schema=SCHEMA)


def _rows(
    calls: Sequence[OpCall],
    forwards: Sequence[OpCall | None] | None,
    target: tensorcore.Target,
    stage: progress.Stage,
) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Return the distinct rows, and for each call the place of its row."""
    rows: list[tuple[Any, ...]] = []
    places: list[int] = []
    for number, call in enumerate(calls):
        if not number % _TOLD:
            stage.add(_TOLD if number else 0)
        forward = forwards[number] if forwards is not None else None
        if forward is None and number and call is calls[number - 1]:  # ranges that are no calls
            places.append(places[-1])
            continue
        places.append(len(rows))
        figures, reason = cost(call, forward=forward)
        entry = entry_of(call.name) or (entry_of(forward.name) if forward is not None else None)
        eligible = tensorcore.eligible(entry)
        ready, why = tensorcore.ready(call, target) if eligible else (None, None)
        rows.append(
            (
                entry.family if entry else None,
                entry.view if entry else False,
                figures.matrix_flops if figures else None,
                figures.vector_flops if figures else None,
                figures.flops if figures else None,
                figures.masked_flops if figures else None,
                figures.bytes_read if figures else None,
                figures.bytes_written if figures else None,
                figures.bytes if figures else None,
                json.dumps(dict(figures.by_dtype)) if figures else None,
                _main_dtype(figures, call) if figures else None,
                reason,
                (figures.bytes_reason or None) if figures else None,
                (figures.note or None) if figures else None,
                eligible,
                ready,
                why,
                tensorcore.unused_reason(
                    call, target.units, figures.matrix_flops if figures else None
                )
                if eligible
                else None,
            )
        )
    return rows, places


def _main_dtype(cost: Cost, call: OpCall) -> str | None:
    """Return the dtype with the most FLOPs, or, if the op has no FLOPs, the dtype of the first tensor."""
    if cost.by_dtype:
        return max(cost.by_dtype, key=lambda dtype: cost.by_dtype[dtype])
    first = next(iter(tensors(call)), None)
    return first.dtype if first is not None else None
