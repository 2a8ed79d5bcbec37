"""Counts of a run that do not depend on the machine's speed, for tests of a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import polars as pl

from opscope.core.advice.changes import run_of
from opscope.core.advice.detectors.graph_breaks import breaks
from opscope.core.advice.detectors.recompilations import compilations, repeats
from opscope.core.advice.detectors.value_reads import outermost, unrecorded
from opscope.core.advice.finding import CannotTell
from opscope.core.advice.pace import blocking
from opscope.core.analysis.answers import Answers
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import DTYPE_NAMES

COUNTS: Final = {
    "count": pl.String,
    "value": pl.Int64,
    "unit": pl.String,
    "detail": pl.String,
    "reason": pl.String,
}
#: Every count in its order, with the unit of its value.
UNITS: Final = {
    "ops": "count",
    "flops": "FLOP",
    "bytes": "bytes",
    "shapes": "count",
    "dtypes": "count",
    "kernels": "count",
    "copies_to_device": "count",
    "bytes_to_device": "bytes",
    "copies_from_device": "count",
    "bytes_from_device": "bytes",
    "syncs": "count",
    "reads": "count",
    "compilations": "count",
    "recompilations": "count",
    "graph_breaks": "count",
    "collectives": "count",
    "collective_bytes": "bytes",
    "peak_memory": "bytes",
    "allocations": "count",
    "memory_kept": "bytes",
}
NO_GPU: Final = "no GPU was used"
NO_OPS: Final = (
    "no op was recorded: is the framework observed, and did it run in what was measured?"
)
NO_FRAMEWORK: Final = "no framework that opscope observes ran in what was measured"
NO_COMPILATIONS: Final = "the profiler that recorded this does not record compilations"
NOT_COMPILING: Final = "compilations of {framework} are not seen: a provider or plug-in may compile"
#: The frameworks whose compilations opscope records.
_COMPILING: Final = ("torch", "tensorflow", "keras", "jax", "mindspore")
NO_MEMORY: Final = (
    "memory was not recorded: opscope records it of PyTorch alone, with init(memory=True)"
)
NO_SHAPES: Final = "shapes were not recorded of {ops}"
NOT_TOLD_APART: Final = (
    "{many} programs were compiled, and only torch.compile tells a second compilation of one from the"
    " first of another: run the step once before it is measured, and hold compilations to 0"
)
_NOT_BLOCKING: Final = (
    "which calls wait is known from the GPU runtime's calls, which were not captured"
)
_NAMED: Final = 3
#: A dtype in the text of arguments: the part before a shape.
_DTYPE: Final = r"\b(?:" + "|".join(sorted(set(DTYPE_NAMES.values()))) + r")\b"
#: A value, or None; its parts in words; and the reason if the value is not known.
Known: TypeAlias = tuple[int | None, str | None, str | None]


def answer(profile: Answers) -> pl.DataFrame:
    """What the run did, in counts that no machine's speed changes: ops, FLOPs, bytes, copies, reads,
    compilations and more.

    A count that the profile cannot tell is null with the reason, never 0.
    """
    figures = dict(_counts(profile))
    rows = [(name, figures[name][0], unit, *figures[name][1:]) for name, unit in UNITS.items()]
    return pl.DataFrame(rows, schema=COUNTS, orient="row")


def _counts(profile: Answers) -> Iterator[tuple[str, Known]]:
    totals = profile.op_totals()
    yield (
        "ops",
        (None, None, NO_OPS) if totals.is_empty() else (int(totals["calls"].sum()), None, None),
    )
    for name in ("flops", "bytes"):
        yield name, _cost(profile, totals, name)
    yield "shapes", _shapes(totals)
    yield "dtypes", _dtypes(totals)
    yield "kernels", _kernels(profile)
    yield from _copies(profile)
    yield "syncs", _syncs(profile)
    yield "reads", _reads(profile)
    yield "compilations", _compilations(profile)
    yield "recompilations", _recompilations(profile)
    yield "graph_breaks", _breaks(profile)
    yield from _collectives(profile, totals)
    yield from _memory(profile)


def _cost(profile: Answers, totals: pl.DataFrame, name: str) -> Known:
    if totals.is_empty():
        return None, None, NO_OPS
    label = {"flops": "FLOPs"}.get(name, name)
    lacks = profile.missing_costs().filter(pl.col("lacks").str.contains(label, literal=True))
    if len(lacks):
        why = f"{label} of {_several(lacks['op'])} are not known: {lacks['why'][0]}"
        return None, None, why
    return int(totals[name].sum()), None, None


def _shapes(totals: pl.DataFrame) -> Known:
    if totals.is_empty():
        return None, None, NO_OPS
    bare = totals.filter(pl.col("inputs").is_null() & pl.col("outputs").is_null())
    if len(bare) == len(totals):
        return None, None, NO_SHAPES.format(ops="any op")
    distinct = totals.select("op", "direction", "inputs").unique()
    return len(distinct), None, None


def _dtypes(totals: pl.DataFrame) -> Known:
    names = totals.select(dtypes_of_ops()).to_series().explode().drop_nulls().unique().sort()
    if names.is_empty():
        return None, None, NO_OPS if totals.is_empty() else NO_SHAPES.format(ops="any op")
    return len(names), ", ".join(names), None


def dtypes_of_ops() -> pl.Expr:
    """Return a list of dtypes for each row of ``op_totals``: those of its data inputs and of all outputs, so
    that a cast has both."""
    given = pl.col("dtypes").cast(pl.String).str.split(",").fill_null([])
    return given.list.concat(
        pl.col("outputs").cast(pl.String).fill_null("").str.extract_all(_DTYPE)
    ).list.unique()


def _kernels(profile: Answers) -> Known:
    value = None if profile.cpu_only else profile.summary()["kernels"][0]
    if value is None:
        return None, None, NO_GPU if profile.cpu_only else "kernels were not captured"
    lost = profile.lost_kernels()
    if len(lost):
        return None, None, "the recording lacks kernels (lost_kernels())"
    return int(value), None, None


def _copies(profile: Answers) -> Iterator[tuple[str, Known]]:
    for way, kinds in (("to_device", r"\A(H|U)\w*toD"), ("from_device", r"\AD\w*to(H|U)")):
        names = f"copies_{way}", f"bytes_{way}"
        if profile.cpu_only or not profile.trace.has("memops"):
            why = NO_GPU if profile.cpu_only else "copies were not captured"
            yield from ((name, (None, None, why)) for name in names)
            continue
        mine = profile.memops().filter(pl.col("kind").str.contains(kinds).fill_null(False))
        lines, lacks = _lines(mine), mine["bytes"].null_count()
        yield names[0], (len(mine), lines, None)
        unsized = f"{lacks:,} copies do not say how much they copied" if lacks else None
        yield names[1], (None if lacks else int(mine["bytes"].sum()), lines, unsized)


def _syncs(profile: Answers) -> Known:
    if profile.cpu_only:
        return None, None, f"{NO_GPU}; reads counts what would wait on one"
    if not profile.trace.has("calls"):
        return None, None, _NOT_BLOCKING
    rows = blocking(profile.attribution)
    names = profile.trace["calls"]["name"].gather(rows).cast(pl.String)
    return len(rows), _several(names) or None, None


def _reads(profile: Answers) -> Known:
    if profile.of(run_of).framework is None:
        return None, None, NO_FRAMEWORK
    why = unrecorded(profile, by_opscope=profile.of(run_of).by_opscope)
    if why is not None:
        return None, None, why
    mine = outermost(profile).filter("reads")
    return len(mine), _lines(mine), None


def _unseen(profile: Answers, rows: pl.DataFrame | None) -> str | None:
    """Return why compilations are not known; None if they are."""
    framework = profile.of(run_of).framework
    if rows is None:
        return NO_COMPILATIONS
    if len(rows) or framework in _COMPILING:
        return None
    return NO_FRAMEWORK if framework is None else NOT_COMPILING.format(framework=framework)


def _compilations(profile: Answers) -> Known:
    rows = compilations(profile)
    why = _unseen(profile, rows)
    if rows is None or why is not None:
        return None, None, why
    return len(rows), _several(rows["part5"]) or None, None


def _recompilations(profile: Answers) -> Known:
    rows = compilations(profile)
    why = _unseen(profile, rows)
    if rows is None or why is not None:
        return None, None, why
    plain = rows.filter(pl.col("part1").is_null())
    if len(plain) > 1:
        return None, None, NOT_TOLD_APART.format(many=f"{len(plain):,}")
    again = repeats(rows)
    return len(again), _several(again["part5"]) or None, None


def _breaks(profile: Answers) -> Known:
    if profile.of(run_of).framework not in (None, "torch"):
        return None, None, "graph breaks are torch.compile's"
    places = breaks(profile)
    if isinstance(places, CannotTell):
        return None, None, places.reason
    return len(places), "; ".join(places[:_NAMED]) or None, None


def _collectives(profile: Answers, totals: pl.DataFrame) -> Iterator[tuple[str, Known]]:
    rows = profile.collectives()
    lone = profile.of(run_of).framework is None
    if rows.is_empty() and (totals.is_empty() or lone):
        why = NO_OPS if totals.is_empty() else NO_FRAMEWORK
        yield from ((name, (None, None, why)) for name in ("collectives", "collective_bytes"))
        return
    kinds = _several(rows["kind"]) or None
    yield "collectives", (int(rows["calls"].sum()), kinds, None)
    unknown = rows["message_bytes"].null_count()
    unsized = "the size of some messages was not recorded" if unknown else None
    size = None if unknown else int(rows["message_bytes"].sum())
    yield "collective_bytes", (size, kinds, unsized)


def _memory(profile: Answers) -> Iterator[tuple[str, Known]]:
    rows = profile.memory()
    if rows.is_empty():
        names = ("peak_memory", "allocations", "memory_kept")
        yield from ((name, (None, None, NO_MEMORY)) for name in names)
        return
    on_gpu = rows.filter(pl.col("device") >= 0)
    rows = rows if on_gpu.is_empty() else on_gpu
    yield "peak_memory", (int(rows.select(pl.col("peak_memory").max()).item()), None, None)
    yield "allocations", (int(rows["allocations"].sum()), None, None)
    yield "memory_kept", (int((rows["allocated"] - rows["released"]).sum()), None, None)


def _lines(rows: pl.DataFrame) -> str | None:
    """Return the source lines with most rows, and how many each has."""
    sources = rows["source"].cast(pl.String).drop_nulls().str.split(" < ").list.first()
    most = sources.value_counts(sort=True).sort("count", "source", descending=[True, False])
    return (
        ", ".join(f"{line} ({rows_of_line:,})" for line, rows_of_line in most.head(_NAMED).rows())
        or None
    )


def _several(names: pl.Series) -> str:
    distinct = names.cast(pl.String).drop_nulls().unique().sort().to_list()
    rest = len(distinct) - _NAMED
    return ", ".join(distinct[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "counts()",
            "one row per count of the run",
            columns(
                "count value unit detail reason",
                """
                count: text: what is counted: ops; flops and bytes (the least that must be moved) of all
                    ops; shapes (distinct inputs of ops); dtypes; kernels; copies_to_device,
                    copies_from_device and their bytes; syncs (calls that wait for the GPU); reads (of
                    values by the host); compilations, recompilations; graph_breaks; collectives and
                    their bytes; peak_memory, allocations and memory_kept (allocated less released)
                value: count: how many there are, in the row's unit; null if the profile cannot tell
                unit: text: count, FLOP or bytes
                detail: text: names or source lines of what was counted, the most first
                reason: text: why the value is not known; null if it is known
                """,
            ),
        ),
    ),
    merged=lacking.RUNS,
    reports=(
        Report(
            name="counts",
            title="Counts that do not depend on the machine's speed",
            empty="nothing",
            sums="",
        ),
    ),
)
