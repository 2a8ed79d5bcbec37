"""Join the counters that ncu measured to the kernels of another trace of the same program.

ncu runs every kernel many times and slows a program down, so counters are measured in a run of their own. The
n-th execution of a kernel in ncu's run is taken for the n-th execution of this name in the trace: on its
stream if both runs have the same streams, else on its device, else in its process. Names are compared without
parts that tools write differently. A kernel whose executions differ in number, or whose grids do, is not
joined; notes say so.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.tables.trace import Trace, next_range_id
from opscope.readers.errors import BadInput

from . import reader

#: The domain of the marks that name the execution of counters.
DOMAIN: Final = "ncu"
#: The most names that a note lists.
_NAMED: Final = 3
_SPACE: Final = re.compile(r"\s+")
_ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)|<unnamed>|\(anonymous class\)")


def with_counters(trace: Trace, path: str | os.PathLike[str]) -> Trace:
    """Return ``trace`` with the counters in ``path``, ncu's CSV or report. Raises BadInput."""
    where = Path(path)
    if not where.is_file():
        raise BadInput(where, "no such file" if not where.exists() else "not a file")
    measured = reader.read(where)
    if trace["kernels"].is_empty():
        raise BadInput(where, "these counters have no kernels to belong to: the trace has none")
    theirs, ours = _executions(measured, where), _own(trace)
    joined, notes = _pair(theirs, ours)
    if joined.is_empty():
        said = "; ".join(
            f"{message} ({count})" for severity, message, count in notes if severity != "info"
        )
        raise BadInput(
            where,
            f"none of these counters belong to a kernel of the trace, so is it the same program? {said}",
        )
    first = next_range_id(trace["ranges"])
    marks = joined.with_columns(
        pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias("range_id")
    )
    values = _values(measured)
    counters = _counters(values, marks)
    ranges = marks.select(
        pl.col("range_id").alias("id"),
        "process",
        "start",
        pl.col("start").alias("end"),
        pl.lit(DOMAIN).cast(pl.Categorical).alias("domain"),
        pl.col("text").cast(pl.Categorical).alias("text"),
        pl.lit("mark").cast(pl.Categorical).alias("kind"),
    )
    ranges_of_both = pl.concat([trace["ranges"], ranges], how="diagonal_relaxed")
    kept = pl.concat([trace["counters"], counters], how="diagonal_relaxed")
    made = trace.replace(ranges=ranges_of_both, counters=kept)
    for severity, what, many in notes:
        made.note(severity, what, many)
    for severity, what, many in measured["notes"].rows():
        if severity != "info":
            made.note(severity, f"{where.name}: {what}", many)
    return made


def plain(name: str) -> str:
    """Return a kernel's name as all tools write it: without spaces, ``void`` and the parameters' list.

    Nsight Systems and Kineto may leave the parameters out, or write an anonymous namespace in another way.
    """
    text = _ANONYMOUS.sub("<unnamed>", name).removeprefix("void ")
    text = _SPACE.sub("", text)
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        if text[index] == ")":
            depth += 1
        elif text[index] == "(":
            depth -= 1
            if not depth:
                # text after the parameters (such as a lambda's call) belongs to the name
                rest = text[index:]
                return text[:index] if rest.endswith(")") and index else text
    return text


def _name(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with ``name`` in the form of ``plain`` and ``text`` as it was; each distinct name is
    read once."""
    texts = frame["name"].cast(pl.String)
    plain_of_text = {text: plain(text) for text in texts.unique().drop_nulls().to_list()}
    same = texts.replace_strict(
        list(plain_of_text), list(plain_of_text.values()), default=None, return_dtype=pl.String
    )
    return frame.with_columns(same.alias("name"), texts.alias("text"))


def _executions(measured: Trace, path: Path) -> pl.DataFrame:
    """Return the launches that ncu measured, in order: name, device, stream, grid, execution (a number)."""
    counters = measured["counters"].select("process", "correlation").unique(maintain_order=True)
    if counters.is_empty():
        raise BadInput(path, "ncu's file has no counter that is a number")
    if len(measured["kernels"]):
        executions = measured["kernels"].select(
            "process", "device", "stream", "start", "name", "grid", "correlation"
        )
    else:
        key = measured["counters"].select(
            "process", "device", "correlation", pl.col("range_id").alias("id")
        )
        marks = measured["ranges"].select("id", "start", pl.col("text").alias("name"))
        executions = key.unique("id", maintain_order=True).join(marks, on="id", how="inner")
        executions = executions.with_columns(
            pl.lit(None, pl.Int64).alias("stream"), pl.lit(None, pl.String).alias("grid")
        )
    executions = executions.sort("start").with_columns(pl.col("grid").cast(pl.String))
    return _name(executions).with_columns(pl.col("correlation").alias("execution"))


def _own(trace: Trace) -> pl.DataFrame:
    kernels = trace["kernels"].select(
        "process",
        "device",
        "stream",
        "start",
        "name",
        "correlation",
        pl.col("grid").cast(pl.String),
    )
    calls = trace["calls"].select("process", "correlation", pl.col("start").alias("called"))
    calls = calls.unique(["process", "correlation"], keep="last", maintain_order=True)
    # launches are in the order of their calls; work of a CUDA graph, which has only one call, is in the order
    # in which it ran
    both = kernels.join(calls, on=["process", "correlation"], how="left", maintain_order="left")
    order = [pl.coalesce("called", "start"), pl.col("start")]
    return _name(both.sort(order, maintain_order=True))


def _pair(
    theirs: pl.DataFrame, ours: pl.DataFrame
) -> tuple[pl.DataFrame, list[tuple[str, str, int]]]:
    """Return our executions that got counters, with the number ``execution``, and notes on what did not
    match.
    """
    keys = _keys(theirs, ours)
    counted = theirs.with_columns(pl.int_range(pl.len()).over(keys).alias("place"))
    placed = ours.with_columns(pl.int_range(pl.len()).over(keys).alias("place"))
    counts_of_both = [
        frame.group_by(keys).agg(pl.len().cast(pl.Int64).alias(column))
        for frame, column in ((counted, "measured"), (placed, "launched"))
    ]
    both = counts_of_both[0].join(
        counts_of_both[1], on=keys, how="full", coalesce=True, nulls_equal=True
    )
    notes: list[tuple[str, str, int]] = []
    only = both.filter(pl.col("launched").is_null())
    rest = both.filter(pl.col("measured").is_null())
    unequal = both.filter(pl.col("measured") != pl.col("launched"))
    _say(notes, "counters of kernels that the trace does not have, left out", only, "measured")
    _say(notes, "kernels without counters: ncu did not measure them", rest, "launched", "info")
    message = "counters of kernels that ran another number of times here, left out"
    _say(notes, message, unequal, "measured")
    same = both.filter(pl.col("measured") == pl.col("launched"))
    pairs = counted.join(same.select(keys), on=keys, how="semi", nulls_equal=True).join(
        placed, on=[*keys, "place"], how="inner", nulls_equal=True, suffix="_here"
    )
    differ = (pl.col("grid") != pl.col("grid_here")).fill_null(False)
    wrong = pairs.filter(differ.any().over(keys))
    _say(notes, "counters of kernels whose grids differ here, left out", wrong, None)
    pairs = pairs.filter(~differ.any().over(keys))
    how = "device and stream" if "stream" in keys else "device" if "device" in keys else "process"
    if len(pairs):
        message = f"kernels got counters of another run, by name and order on their {how}"
        notes.append(("info", message, len(pairs)))
    here = {"process": "process_here", "device": "device_here", "correlation": "correlation_here",
            "start": "start_here", "text": "text_here"}  # fmt: skip
    chosen = [
        pl.col(other if other in pairs.columns else name).alias(name)
        for name, other in here.items()
    ]
    return pairs.select("execution", *chosen), notes


def _keys(theirs: pl.DataFrame, ours: pl.DataFrame) -> list[str]:
    """Return the columns within which executions are counted: the name, and device and stream if both traces
    use the same ones."""
    keys = ["name"]
    for name in ("device", "stream"):
        names_here, other = (
            set(frame[name].drop_nulls().cast(pl.Int64).unique().to_list())
            for frame in (theirs, ours)
        )
        nulls = theirs[name].null_count() + ours[name].null_count()
        if nulls or not names_here or not names_here <= other:
            break
        keys.append(name)
    return keys


def _say(
    notes: list[tuple[str, str, int]],
    message: str,
    rows: pl.DataFrame,
    column: str | None,
    severity: str = "warning",
) -> None:
    if rows.is_empty():
        return
    count = len(rows) if column is None else int(rows[column].sum())
    names = sorted(rows["name"].drop_nulls().unique().to_list())
    listed = ", ".join(name[:80] for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    notes.append((severity, f"{message}: {listed}{more}", count))


def _values(measured: Trace) -> pl.DataFrame:
    return measured["counters"].select(pl.col("correlation").alias("execution"), "name", "value")


def _counters(values: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    about = marks.select("execution", "process", "device", "correlation", "range_id")
    both = values.join(about, on="execution", how="inner", maintain_order="left")
    return both.select("process", "device", "correlation", "range_id", "name", "value")
