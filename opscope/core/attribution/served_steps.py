"""Find the ranges with which an inference server names its engine's steps, and read their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.enclosing import is_user_range
from opscope.core.attribution.numbered_ranges import SERVED_LEAST, outermost
from opscope.core.dialects import serving
from opscope.core.dialects.serving import BESIDE, EngineStep, Share
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE

#: Columns for the facts in a name about the requests of each phase.
SHARE: Final = ("requests", "queries", "keys", "qq", "qk")
PHASES: Final = ("prefill", "decode")
_PLACE: Final = {"process": pl.Int32, "thread": pl.Int64, "start": pl.Int64, "end": pl.Int64}
#: Columns for the facts in the name of a step.
_NAMED: Final = {
    "kind": pl.String,
    "source": pl.String,
    "padded": pl.Int64,
    "confidence": pl.Float64,
    **{f"{phase}_{name}": pl.Int64 for phase in PHASES for name in SHARE},
}
#: The columns of ``served_steps``; times in ns.
SERVED: Final = {**_PLACE, **_NAMED}
#: The kind of a step that does both prefill and decode.
_ONE_WORD: Final = {serving.MIXED: "mixed"}


def served_steps(ranges: pl.DataFrame, meaning: Meaning) -> pl.DataFrame:
    """Return the steps that a server names (``SERVED``), by process and begin: for each process the
    outermost ones on the thread with most of them. Names with only a word (``decode 3``) count only if
    there are no others."""
    own = _own_steps(ranges, meaning)
    named = _steps_by_reading(meaning)
    parts = [pl.DataFrame(schema=SERVED), own]
    if not named:
        return own
    by_server = {code for code, step in named.items() if step.server != serving.NAMED}
    sglang = any(named[code].server == serving.SGLANG for code in by_server)
    beside = _beside(meaning) if sglang else {}
    read = {**beside, **named}
    table = _table(read, len(meaning.readings))
    tiers = [_flags(meaning, codes) for codes in ({*by_server, *beside}, named) if codes]
    process = ranges["process"].fill_null(NONE).to_numpy()
    serving_processes = np.unique(process[_flags(meaning, named)])
    for number in np.setdiff1d(serving_processes, own["process"].to_numpy()).tolist():
        mine = process == number
        chosen = (outermost(ranges, meaning, mine & tier, SERVED_LEAST) for tier in tiers)
        rows = next((rows for rows in chosen if rows is not None), None)
        if rows is not None:
            where = ranges[rows].select("process", "thread", "start", "end")
            parts.append(pl.concat([where, table[meaning.reading[rows]]], how="horizontal"))
    return pl.concat(parts).sort("process", "start", "end")


def _own_steps(ranges: pl.DataFrame, meaning: Meaning) -> pl.DataFrame:
    """Return the steps whose kind is given by a mark of ``opscope.step(kind=…)``, with the step's own
    range."""
    read = {
        code: step
        for code, (reading, text) in enumerate(zip(meaning.readings, meaning.texts, strict=True))
        if reading.role == "note" and (step := serving.own_step(text)) is not None
    }
    if not read:
        return pl.DataFrame(schema=SERVED)
    marks = np.flatnonzero(_flags(meaning, read))
    lane = ["process", "thread"]
    counts = _table(read, len(meaning.readings))[meaning.reading[marks]]
    marked = pl.concat([ranges[marks].select(*lane, "start"), counts], how="horizontal")
    steps = ranges[np.flatnonzero(meaning.role == ROLE["step"])].select(
        *lane, pl.col("start").alias("begun"), "end"
    )
    joined = marked.sort("start").join_asof(
        steps.sort("begun"),
        left_on="start",
        right_on="begun",
        by=lane,
        strategy="backward",
        check_sortedness=False,
    )
    inside = joined.filter(pl.col("start") <= pl.col("end"))
    rows = inside.unique([*lane, "begun"], keep="last").with_columns(pl.col("begun").alias("start"))
    return rows.select(*SERVED).cast(dict(SERVED.items())).sort("process", "start")


def _steps_by_reading(meaning: Meaning) -> dict[int, EngineStep]:
    """Return the step named by each reading's text, by the reading's number."""
    read = (
        (code, serving.engine_step(text) if is_user_range(reading) else None)
        for code, (reading, text) in enumerate(zip(meaning.readings, meaning.texts, strict=True))
    )
    return {code: step for code, step in read if step is not None}


def _beside(meaning: Meaning) -> dict[int, EngineStep]:
    """Return the drafts and verifications of a server whose steps are named, by the reading's number."""
    return {
        code: EngineStep(serving.SGLANG, BESIDE[text], Share(), Share())
        for code, (reading, text) in enumerate(zip(meaning.readings, meaning.texts, strict=True))
        if text in BESIDE and is_user_range(reading)
    }


def _flags(meaning: Meaning, codes: Iterable[int]) -> NDArray[np.bool_]:
    """Return for each range whether its reading is one of ``codes``."""
    flags = np.zeros(len(meaning.readings), bool)
    flags[list(codes)] = True
    return flags[meaning.reading]


def _table(read: dict[int, EngineStep], length: int) -> pl.DataFrame:
    """Return the content of each reading's name (``_NAMED``); null for readings that name no step."""
    steps = [
        (
            code,
            _ONE_WORD.get(step.kind, step.kind),
            step.server,
            step.padded,
            step.confidence,
            *(getattr(share, name) for share in (step.prefill, step.decode) for name in SHARE),
        )
        for code, step in read.items()
    ]
    rows = pl.DataFrame(steps, schema={"code": pl.Int64, **_NAMED}, orient="row")
    every = pl.select(pl.int_range(length, dtype=pl.Int64).alias("code"))
    return every.join(rows, on="code", how="left", maintain_order="left").drop("code")
