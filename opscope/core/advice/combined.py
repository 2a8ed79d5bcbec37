"""What all findings save together, by one replay of the timeline, and their evidence as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from opscope.core.advice.ask import Said, Simulate, refused
from opscope.core.advice.finding import EVIDENCE, Edit

SCHEMA: Final[Mapping[str, type[pl.DataType]]] = MappingProxyType(
    {
        "wall_time": pl.Int64,
        "new_wall_time": pl.Int64,
        "saving": pl.Int64,
        "saving_share": pl.Float64,
        "step_saving": pl.Int64,
        "simulated": pl.Int64,
        "not_simulated": pl.Int64,
        "omitted": pl.String,
        "reason": pl.String,
    }
)
NO_TIMELINE: Final = "the trace has no timeline to replay"
NO_EDIT: Final = "no finding says what its change does to the timeline"
NO_FINDING: Final = "there is no finding"


def combined(found: Sequence[Said], simulate: Simulate, wall_time: int | None) -> pl.DataFrame:
    """Return in one row what all findings save together (SCHEMA; ns), or null and the reason.

    ``wall_time``: the window's. Where several changes touch the same work the smallest factor counts.
    A finding that can save nothing is not among those left out.
    """
    findings = [one for one in found if one.finding is not None]
    edits = [
        (one.detector, one.finding.edit) for one in findings if one.finding and one.finding.edit
    ]
    reason = NO_FINDING if not findings else NO_TIMELINE if edits else NO_EDIT
    alone = [one.times for one in findings if one.times is not None]
    times: pl.DataFrame | None
    if len(edits) == len(alone) == 1:  # nothing to combine it with
        times = alone[0]
    else:
        edits, times = _replayed(edits, simulate)
    done = [id(edit) for _, edit in edits] if times is not None else []
    omitted = [one.detector for one in findings if one.finding and id(one.finding.edit) not in done]
    row: dict[str, Any] = {"simulated": len(done), "not_simulated": len(omitted)}
    row["wall_time"], row["omitted"] = wall_time, ", ".join(dict.fromkeys(omitted)) or None
    if times is None or times.is_empty():
        row["reason"] = reason
    else:
        whole = times.row(0, named=True)
        names = ("wall_time", "new_wall_time", "saving", "saving_share")
        row |= {name: whole[name] for name in names}
        steps = times["saving"][1:].median()
        row["step_saving"] = None if steps is None else round(float(steps))  # type: ignore[arg-type]
    filled = {name: row.get(name) for name in SCHEMA}
    return pl.DataFrame([filled], schema=dict(SCHEMA), orient="row")


def _replayed(
    edits: list[tuple[str, Edit]], simulate: Simulate
) -> tuple[list[tuple[str, Edit]], pl.DataFrame | None]:
    """Return the edits that fit the trace, each with its detector, and the times with all of them."""
    if not edits:
        return edits, None
    try:
        return edits, simulate([edit for _, edit in edits])
    except Exception:  # noqa: BLE001 - one detector's edit must not cost the others' estimate
        fit = []
        for detector, edit in edits:
            try:
                simulate([edit])
            except Exception:  # noqa: BLE001 - as above
                refused(detector)
            else:
                fit.append((detector, edit))
        return _replayed(fit, simulate) if len(fit) < len(edits) else (edits, None)


def evidence(found: Sequence[Said]) -> pl.DataFrame:
    """Return the rows of the findings' evidence, with each finding's number and detector."""
    schema = {
        "number": pl.Int64(),
        "detector": pl.String(),
        **{k: v() for k, v in EVIDENCE.items()},
    }
    parts = [pl.DataFrame(schema=schema)]
    for number, one in enumerate(found, 1):
        rows = one.finding.rows if one.finding is not None else None
        if rows is None:
            continue
        known = [
            pl.col(name).cast(kind, strict=False)
            if name in rows.columns
            else pl.lit(None, kind).alias(name)
            for name, kind in EVIDENCE.items()
        ]
        named = rows.select(*known).with_columns(
            number=pl.lit(number), detector=pl.lit(one.detector)
        )
        parts.append(named.select(pl.col(name).cast(kind) for name, kind in schema.items()))
    return pl.concat(parts)
