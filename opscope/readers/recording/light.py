"""Read light mode's files in a process's part as trace tables: a snapshot and the log of later records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import light_format
from opscope.core.light_format import PHASES
from opscope.core.light_summary import BUCKETS, Summary, Unreadable, middle, read_records
from opscope.core.schema import GPU_ENERGY
from opscope.core.tables.trace import conform, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.recording.parts import refuse_odd

#: The largest size of a file in bytes: a snapshot with all possible series has 60 MB.
MAX_BYTES: Final = 256 << 20
Note = tuple[str, str, int]


def light_tables(
    part: Path, names: Mapping[int, str], notes: list[Note]
) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Return the tables of light mode and its samples; nothing for a part without it. ``names``: the names of
    the samples. Raises BadInput if a file is damaged."""
    none = pl.DataFrame(schema=table_schema("samples"))
    data, log = _bytes(part / light_format.SNAPSHOT), _bytes(part / light_format.LOG)
    if data is None and log is None:
        return {}, none
    facts: dict[str, Any] = {}
    summary = Summary()
    if data is not None:
        try:
            summary, facts = Summary.of(data)
        except Unreadable as error:
            raise BadInput(part / light_format.SNAPSHOT, str(error)) from None
    summary.add(_sound(read_records(log or b""), notes))
    if not len(summary.kept()):
        return {}, _samples(summary, _names(names, facts))
    tables = {
        "light": _whole(summary, facts),
        "light_blocks": _blocks(summary),
        "light_lengths": _lengths(summary),
        "light_steps": _steps(summary),
    }
    dropped = _count(facts.get("dropped"))
    if dropped:
        notes.append(("warning", "steps that light mode dropped", dropped))
    return tables, _samples(summary, _names(names, facts))


def _bytes(path: Path) -> bytes | None:
    try:
        refuse_odd(path)
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(path, f"larger than {MAX_BYTES} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None


def _sound(records: Any, notes: list[Note]) -> Any:
    """Return the records whose times are possible."""
    words = records[:, 2:]
    step = records[:, 1] != light_format.SAMPLE
    far = (np.abs(words[:, 1]) >= 1 << 61) | (words[:, 2] < 0) | (words[:, 2] >= 1 << 53)
    odd = (words[:, 3:] < 0).any(axis=1) | (words[:, 3:] >= 1 << 53).any(axis=1)
    wrong = np.where(step, far | odd, np.abs(words[:, 0]) >= 1 << 61)
    wrong |= ~np.isin(records[:, 1], (light_format.STEP, light_format.FULL, light_format.SAMPLE))
    if wrong.any():
        notes.append(
            ("warning", "records of light mode that cannot be, left out", int(wrong.sum()))
        )
    return records[~wrong]


def _names(names: Mapping[int, str], facts: Mapping[str, Any]) -> dict[int, str]:
    names_stated = facts.get("names")
    names_by_number = dict(names)
    for number, name in names_stated.items() if isinstance(names_stated, dict) else ():
        if isinstance(name, str) and len(number) < 10 and number.isdecimal():
            names_by_number[int(number)] = name[:256]
    return names_by_number


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _whole(summary: Summary, facts: Mapping[str, Any]) -> pl.DataFrame:
    cost = facts.get("cost")
    mean, error = cost if isinstance(cost, list) and len(cost) == 2 else (None, None)
    kept = summary.kept()
    recorded, refused = facts.get("recorded"), facts.get("not_recorded")
    why = (
        "; ".join(f"{count} × {reason}" for reason, count in refused.items())
        if isinstance(refused, dict)
        else ""
    )
    starts, ends = summary.blocks[:, 3], summary.blocks[:, 4]
    return pl.DataFrame(
        {
            "process": [0],
            "steps": [summary.steps],
            "full_steps": [summary.full],
            "start": [int(min(starts.min(initial=1 << 61), kept[:, 3].min()))],
            "end": [int(max(ends.max(initial=-(1 << 61)), (kept[:, 3] + kept[:, 4]).max()))],
            "step_cost": [_count(mean)],
            "step_cost_error": [_count(error)],
            "writing": [_count(facts.get("writing"))],
            "spells": [_count(facts.get("spells"))],
            "spells_recorded": [len(recorded) if isinstance(recorded, list) else None],
            "not_recorded": [why or None],
        },
        schema=table_schema("light"),
    )


def _blocks(summary: Summary) -> pl.DataFrame:
    rows = summary.blocks
    names = ("first_step", "steps", "start", "end", "duration", *PHASES, "longest")
    return conform(
        "light_blocks",
        pl.DataFrame({name: rows[:, 1 + index] for index, name in enumerate(names)}).with_columns(
            pl.lit(0, pl.Int32).alias("process")
        ),
    )


def _lengths(summary: Summary) -> pl.DataFrame:
    phase, bucket = np.nonzero(summary.lengths)
    middles = np.array([0.0, *map(middle, range(1, BUCKETS))])
    names = ("step", *PHASES)
    return conform(
        "light_lengths",
        pl.DataFrame(
            {
                "phase": [names[phase_number] for phase_number in phase],
                "length": middles[bucket],
                "steps": summary.lengths[phase, bucket],
            },
            schema={"phase": pl.String, "length": pl.Float64, "steps": pl.Int64},
        ).with_columns(pl.lit(0, pl.Int32).alias("process")),
    )


def _steps(summary: Summary) -> pl.DataFrame:
    rows = summary.kept()
    return conform(
        "light_steps",
        pl.DataFrame(
            {
                "step": rows[:, 2],
                "start": rows[:, 3],
                "end": rows[:, 3] + rows[:, 4],
                "duration": rows[:, 4],
                **{name: rows[:, 5 + index] for index, name in enumerate(PHASES)},
                "full": rows[:, 1] == light_format.FULL,
            }
        ).with_columns(pl.lit(0, pl.Int32).alias("process")),
    )


def _samples(summary: Summary, names: Mapping[int, str]) -> pl.DataFrame:
    """Return the samples' means, each at the time of the last sample in it."""
    frames = [pl.DataFrame(schema=table_schema("samples"))]
    for (number, device), series in summary.series.items():
        points = series.points
        time, count, total = points[:, 1], points[:, 2], points[:, 3]
        is_valid = (count > 0) & np.isfinite(points).all(axis=1) & (np.abs(time) < 1 << 61)
        if number not in names or not is_valid.any() or not -1 <= device < 1 << 15:
            continue
        # for a counter, keep the last value, which is the largest
        value = points[:, 5] if names[number] == GPU_ENERGY else total / np.maximum(count, 1)
        frames.append(
            pl.DataFrame({"time": time[is_valid].astype(np.int64), "value": value[is_valid]})
            .with_columns(
                pl.lit(0, pl.Int32).alias("process"),
                pl.lit(None if device < 0 else device, pl.Int32).alias("device"),
                pl.lit(names[number]).cast(pl.Categorical).alias("name"),
            )
            .select(*table_schema("samples"))
        )
    return pl.concat(frames)
