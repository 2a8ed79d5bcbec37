"""Find the ranges with which an inference server names its engine's steps, and read their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.enclosing import is_user_range
from opscope.core.attribution.numbered_ranges import outermost
from opscope.core.dialects import serving
from opscope.core.dialects.serving import BESIDE, EngineStep, Share
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE, Ints

#: Columns for the facts in a name about the requests of each phase.
SHARE: Final = ("requests", "queries", "keys", "qq", "qk")
PHASES: Final = ("prefill", "decode")
#: Columns for figures of a name that are of both phases together.
BOTH: Final = ("both_requests", "both_queries", "both_keys")
_PLACE: Final = {"process": pl.Int32, "thread": pl.Int64, "start": pl.Int64, "end": pl.Int64}
#: Columns for the facts in the name of a step.
_NAMED: Final = {
    "kind": pl.String,
    "source": pl.String,
    "padded": pl.Int64,
    "confidence": pl.Float64,
    **{f"{phase}_{name}": pl.Int64 for phase in PHASES for name in SHARE},
    **dict.fromkeys(BOTH, pl.Int64),
}
#: The columns of ``served_steps``; times in ns. ``engine``: 0 is the one with most steps of its process.
SERVED: Final = {**_PLACE, **_NAMED, "engine": pl.Int64}
#: SGLang verifies drafts in steps of another name; if there are such steps, its decodes are those of a draft
#: model.
_DRAFT_DOUBT: Final = 0.9
#: Threads of a process on which an engine is looked for.
_MOST_THREADS: Final = 64
#: The kind of a step that does both prefill and decode.
_ONE_WORD: Final = {serving.MIXED: "mixed"}


def served_steps(
    ranges: pl.DataFrame, meaning: Meaning, work: Callable[[], pl.DataFrame]
) -> pl.DataFrame:
    """Return the steps that a server names (``SERVED``), by process and begin: for each process the
    outermost ones of all threads that take turns, and of threads with engines of their own. Names with
    only a word (``decode 3``) count only if there are no others, and if ``work`` (process, thread and
    time, ns) began inside them."""
    own = _own_steps(ranges, meaning)
    named = _steps_by_reading(meaning)
    parts = [pl.DataFrame(schema=SERVED), own]
    if named.is_empty():
        return own
    every = named
    if (named["source"] == serving.SGLANG).any():
        every = pl.concat([named, _rows(_beside(meaning))]).unique("code", keep="first")
    table = _table(every, len(meaning.readings))
    by_server = _flags(meaning, every.filter(pl.col("source") != serving.NAMED)["code"].to_list())
    by_word = _flags(meaning, named["code"].to_list())
    process = ranges["process"].fill_null(NONE).to_numpy()
    edges = tuple(ranges[name].fill_null(0).to_numpy() for name in ("start", "end"))
    begun = cache(lambda: work().sort("begun"))
    for number in np.setdiff1d(process[by_word], own["process"].to_numpy()).tolist():
        mine = process == number
        engines = _engines(ranges, edges, np.flatnonzero(mine & by_server))
        if not engines:
            rows = np.flatnonzero(mine & by_word)
            own_work = begun().filter(pl.col("process") == number)
            engines = _engines(ranges, edges, _with_work(ranges, meaning, rows, own_work))
        for engine, rows in enumerate(engines):
            where = ranges[rows].select("process", "thread", "start", "end")
            steps = pl.concat([where, table[meaning.reading[rows]]], how="horizontal")
            parts.append(steps.with_columns(engine=pl.lit(engine, pl.Int64)))
    # a draft model decodes under the name that other steps have
    verified = (pl.col("kind") == serving.VERIFY).any().over("process", "engine")
    drafts = verified & (pl.col("kind") == serving.DECODE) & (pl.col("source") == serving.SGLANG)
    return pl.concat(parts).sort("process", "start", "end").with_columns(
        pl.when(drafts).then(pl.lit(serving.DRAFT)).otherwise("kind").alias("kind"),
        pl.when(drafts).then(_DRAFT_DOUBT).otherwise("confidence").alias("confidence"),
    )  # fmt: skip


def _with_work(ranges: pl.DataFrame, meaning: Meaning, rows: Ints, work: pl.DataFrame) -> Ints:
    """Return the rows whose name has ``work`` (by time) inside some range of its thread, or all if none has:
    a tokenizer's ``decode 12 tokens`` is no step."""
    lane = ["process", "thread"]
    codes, which = np.unique(meaning.reading[rows], return_inverse=True)
    names = pl.Series("name", [serving.pattern(meaning.texts[code]) for code in codes.tolist()])
    of_rows = ranges[rows].select(*lane, "start", "end", names.gather(which), row=pl.Series(rows))
    begun = of_rows.sort("start").join_asof(
        work, left_on="start", right_on="begun", by=lane, strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    worked = (pl.col("begun") < pl.col("end")).any().over(*lane, "name")
    kept = begun.filter(worked)["row"].sort().to_numpy()
    return kept if len(kept) else rows


def _engines(ranges: pl.DataFrame, edges: tuple[Ints, ...], rows: Ints) -> list[Ints]:
    """Return the rows of each engine's steps, in order of their begin. The first engine has the steps of
    the thread with most steps, and of threads whose steps come before or after these, as in a pool. Steps
    that overlap them belong to a second engine (data parallel in one process); a thread that works inside
    them has no engine."""
    thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
    start, end = edges
    engines: list[Ints] = []
    for _ in range(_MOST_THREADS):
        steps = outermost(ranges, rows, 1)
        if steps is None:
            break
        others = thread != (NONE if (own := ranges["thread"][int(steps[0])]) is None else own)
        rows, thread = rows[others], thread[others]
        if not engines:
            engines.append(steps)
            continue
        first = engines[0]
        begins = start[first]
        before = np.searchsorted(begins, start[steps], side="right") - 1
        alone = before == np.searchsorted(begins, end[steps] - 1, side="right") - 1
        until = np.where(before >= 0, end[first[before]], NONE)
        apart = alone & (start[steps] >= until)
        inside = alone & (end[steps] <= until) & ~apart
        if apart.all():
            joined = np.concatenate((first, steps))
            engines[0] = joined[np.argsort(start[joined], kind="stable")]
        elif 2 * inside.sum() <= len(steps):
            engines.append(steps)
    return engines


def engine_of(served: pl.DataFrame, process: Ints, thread: Ints) -> Ints:
    """Return the engine whose steps a thread of a process runs: 0, unless another engine has a thread of
    its own."""
    engine = np.zeros(len(process), np.int64)
    apart = served.filter(pl.col("engine") > 0).unique(["process", "thread"])
    for number, own, which in apart.select("process", "thread", "engine").rows():
        engine[(process == number) & (thread == own)] = which
    return engine


def are_alike(steps: pl.DataFrame) -> bool:
    """Whether all processes with engine steps ran the same batches at one time, as ranks of one engine."""
    if steps["process"].n_unique() <= 1:
        return True
    in_order = steps.sort("process", "start")
    batches = in_order.group_by("process").agg(
        pl.struct("kind", "prefill_requests", "decode_requests")
    )
    number = pl.int_range(pl.len()).over("process")
    met = in_order.group_by(number.alias("number")).agg(pl.max("start") < pl.min("end"))
    return batches["kind"].n_unique() <= 1 and bool(met["start"].all())


def of_job(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of one process if all are ranks of one engine (``are_alike``)."""
    first = pl.col("process") == pl.col("process").first()
    return steps.filter(first) if are_alike(steps) else steps


def _own_steps(ranges: pl.DataFrame, meaning: Meaning) -> pl.DataFrame:
    """Return the steps whose kind is given by a mark of ``opscope.step(kind=…)``, with the step's own
    range."""
    notes = np.flatnonzero(meaning.each(lambda reading: reading.role == "note"))
    read = {
        code: step
        for code in notes.tolist()
        if (step := serving.own_step(meaning.texts[code])) is not None
    }
    if not read:
        return pl.DataFrame(schema=SERVED)
    marks = np.flatnonzero(_flags(meaning, read))
    lane = ["process", "thread"]
    counts = _table(_rows(read), len(meaning.readings))[meaning.reading[marks]]
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
    rows = inside.unique([*lane, "begun"], keep="last").with_columns(
        pl.col("begun").alias("start"), engine=pl.lit(0, pl.Int64)
    )
    return rows.select(*SERVED).cast(dict(SERVED.items())).sort("process", "start")


def _steps_by_reading(meaning: Meaning) -> pl.DataFrame:
    """Return code (the number of a reading) and the facts in its text (``_NAMED``), for each reading that
    names a step.

    Names with all sums are read in columns: a long run has a name for each of its steps.
    """
    codes = np.flatnonzero(meaning.each(is_user_range))
    texts = pl.Series("text", [meaning.texts[code] for code in codes.tolist()], pl.String)
    names = ["library", *(f"{phase}_{name}" for phase in PHASES for name in SHARE)]
    groups = texts.str.extract_groups(serving.WITH_SUMS).struct.rename_fields(names).struct.unnest()
    context, generation = (pl.col(f"{phase}_requests") > 0 for phase in PHASES)
    kind = (
        pl.when(context & generation).then(pl.lit(_ONE_WORD[serving.MIXED]))
        .when(context).then(pl.lit(serving.PREFILL))
        .when(~generation).then(pl.lit(serving.IDLE))
        .when(pl.col("decode_queries") > pl.col("decode_requests")).then(pl.lit(serving.VERIFY))
        .otherwise(pl.lit(serving.DECODE))
    )  # fmt: skip
    summed = (
        groups.with_columns(pl.Series("code", codes, pl.Int64), texts)
        .filter(
            pl.col("decode_qk").is_not_null() & (pl.col("text").str.len_chars() <= serving.LIMIT)
        )
        .with_columns(pl.col(names[1:]).cast(pl.Int64))
        .with_columns(
            kind.alias("kind"),
            pl.col("library")
            .replace_strict(serving.LIBRARIES, default=serving.VLLM)
            .alias("source"),
            *(pl.lit(None, pl.Int64).alias(name) for name in ("padded", *BOTH)),
            pl.lit(1.0).alias("confidence"),
        )
    )
    rest = np.setdiff1d(codes, summed["code"]).tolist()
    others = {code: step for code in rest if (step := serving.engine_step(meaning.texts[code]))}
    bare = {code: step for code in rest if (step := serving.bare_step(meaning.texts[code]))}
    often = np.bincount(meaning.reading, minlength=len(meaning.readings))
    prefills, decodes = (
        sum(often[code] for code, step in bare.items() if step.kind == phase) for phase in PHASES
    )
    if 0 < prefills < decodes:  # otherwise a range contains all decodes of a request
        others |= bare
    table = _rows(others)
    return pl.concat([summed.select(table.columns), table])


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
    flags[np.fromiter(codes, np.int64)] = True
    return flags[meaning.reading]


def _table(rows: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return the content of each reading's name (``_NAMED``); null for readings that name no step."""
    every = pl.select(pl.int_range(length, dtype=pl.Int64).alias("code"))
    return every.join(rows, on="code", how="left", maintain_order="left").drop("code")


def _rows(read: dict[int, EngineStep]) -> pl.DataFrame:
    """Return code and ``_NAMED`` of steps by the numbers of their readings."""
    steps = read.values()
    said: dict[str, Iterable[object]] = {
        "code": read,
        "kind": [_ONE_WORD.get(step.kind, step.kind) for step in steps],
        "source": [step.server for step in steps],
    }
    for name in tuple(_NAMED)[2:]:
        said[name] = map(attrgetter(name.replace("_", ".")), steps)
    columns = {name: list(column) for name, column in said.items()}
    return pl.DataFrame(columns, schema={"code": pl.Int64, **_NAMED})
