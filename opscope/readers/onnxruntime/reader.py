"""Make a trace of ONNX Runtime's profile: nodes are ops, runs are steps, the session's set-up is a phase.

Times are ns since profiling began, from whole µs. A node's time includes that of the nodes in its body
(If, Loop, Scan), as ops nest everywhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from opscope.core.rangetext import format_call
from opscope.core.tables.columns import spread, utf8
from opscope.core.tables.identity import SESSION, session_start
from opscope.core.tables.impossible import NO_TIME
from opscope.core.tables.intervals import Ints
from opscope.core.tables.other_unit import APART, NOT_KNOWN
from opscope.core.tables.trace import Trace
from opscope.readers.errors import TRUNCATED
from opscope.readers.rows import TWICE, once
from opscope.readers.sound import sound_trace

from . import beside, events
from .kernels import device_tables
from .nodes import CONTROL, ON_GPU, Explained, explained

#: Domain of the nodes, as in opscope's own adapter.
DOMAIN: Final = "opscope.onnxruntime"
#: Domain of a framework's runtime internals, which are neither ops nor the user's.
_RUNTIME: Final = "runtime"
#: One run of a session (onnxruntime/core/session/inference_session.cc).
RUN: Final = "model_run"
_SET_UP: Final = r"^(?:model_loading|session_initialization)"
_MICROSECOND: Final = 1000
#: So many times are not whole milliseconds by chance.
_FEWEST: Final = 20
WHOLE: Final = "times are whole microseconds"
STEPS: Final = "steps are the runs of the session (inferred), because ONNX Runtime marks none"
NO_STEPS: Final = "runs of the session overlap in time, so they are not shown as steps"
_NO_MODEL: Final = (
    "weights that kernels packed are not in the profile: give the model that ran (--model), best the one "
    "that SessionOptions.optimized_model_filepath saves, for their shapes, attributes and FLOPs"
)
_NO_SHAPES: Final = (
    "the profile has no shapes, as those of old versions: give the model that ran (--model)"
)
_NOT_IN_MODEL: Final = (
    "nodes that the model has not ({names}): give the one that "
    "SessionOptions.optimized_model_filepath saves"
)
_UNFIT: Final = (
    "nodes whose shapes are not the model's, as after a change of layout: they have the profile's"
)
_BY_ORDER: Final = (
    "nodes without a name were matched to the model's by the order in which they ran (inferred)"
)


def read(path: str | os.PathLike[str], model: str | os.PathLike[str] | None = None) -> Trace:
    """Return the trace in a profile. Raises BadInput, for ``model`` too if it is not the profile's."""
    events_read = events.read(path)
    frame = events_read.frame.with_columns((pl.col("start") + pl.col("duration")).alias("end"))
    is_run = (pl.col("cat") == "Session") & (pl.col("name") == RUN)
    twice = frame.filter(is_run).is_duplicated()
    frame, again = once(frame) if len(twice) and twice.all() else (frame, 0)
    on_host = frame.filter(pl.col("cat") != "Kernel")
    is_node = (pl.col("cat") == "Node") & (pl.col("kind") == "kernel_time")
    nodes = on_host.filter(is_node).sort(
        "start", pl.col("end"), descending=[False, True], maintain_order=True
    )
    of_model: str | None = None
    if model is not None:
        _, calls = beside.of_given(path, model, nodes)
        of_model = os.fspath(model)
    elif (there := beside.of_folder(Path(path), nodes)) is not None:
        _, calls, where = there
        of_model = os.fspath(where)
    else:
        calls = explained(nodes)
    on_host, extended = _nest(on_host)
    runs = on_host.filter(is_run).sort("start")
    stepped = not _overlap(runs)
    device = device_tables(frame)
    # the ranges of ``nodes``, with extended ends
    nodes = on_host.filter(is_node).sort(
        "start", pl.col("end"), descending=[False, True], maintain_order=True
    )
    tables = {
        "processes": _process(on_host, path),
        "threads": on_host.select(
            pl.lit(0, pl.Int32).alias("process"), pl.col("tid").alias("thread"), pl.col("tid").alias("os_tid")
        ).drop_nulls("thread").unique(maintain_order=True),
        "clocks": pl.DataFrame({"clock_domain": [0], "kind": ["unknown"], "to_unix_ns": [None]}),
        "ranges": _ranges(on_host.filter(~is_node), nodes, calls, stepped),
        **device,
    }  # fmt: skip
    on_gpu = bool(nodes["provider"].is_in(ON_GPU).any())
    origin = {
        "format": "onnxruntime",
        "tool": "ONNX Runtime",
        "version": "",
        "paths": [str(path)],
        "resolution_ns": _MICROSECOND,
        **({SESSION: began} if (began := session_start(Path(path).name)) is not None else {}),
        **({"model": of_model} if of_model is not None else {}),
        **({"gpu": True} if on_gpu and "kernels" not in device else {}),
        **(
            {TRUNCATED: events_read.truncated}
            if events_read.truncated.startswith(TRUNCATED)
            else {}
        ),
    }
    trace = sound_trace(tables, origin)
    _note(trace, events_read, nodes, calls, of_model, extended)
    if again:
        trace.note("warning", TWICE, again)
    complete = not (events_read.truncated or events_read.dropped)
    if complete and len(runs) and (apart := _apart(nodes["start"].to_numpy(), runs)):
        trace.note("warning", APART, apart)
    if model is None and of_model is not None:
        trace.note("info", f"the model beside the profile was used: {Path(of_model).name}")
    if len(runs):
        trace.note("info", STEPS if stepped else NO_STEPS, len(runs))
    if on_gpu and "kernels" not in device:
        trace.note(
            "warning",
            "kernels were launched but not captured: this build of ONNX Runtime records none",
        )
    return trace


def _process(frame: pl.DataFrame, path: str | os.PathLike[str]) -> pl.DataFrame:
    pids = frame["pid"].drop_nulls()
    pid = pids.filter(pids >= 0).mode().sort()
    return pl.DataFrame(
        {
            "process": [0],
            "pid": pid[:1] if len(pid) else [None],
            "clock_domain": [0],
            "name": [utf8(Path(path).name)],
            "framework": ["onnxruntime"],
        },
        schema_overrides={"process": pl.Int32, "pid": pl.Int64, "clock_domain": pl.Int32},
    )


def _apart(start: Ints, runs: pl.DataFrame) -> int:
    """Return how many nodes began in no run, if most did. Behind the last run a run may have been going on as
    the profile ended."""
    begun, reach = runs["start"].to_numpy(), np.maximum.accumulate(runs["end"].to_numpy())
    last = np.searchsorted(begun, start, side="right") - 1
    outside = (last < 0) | (start > reach[last] + _MICROSECOND)
    outside &= (start < reach[-1]) | (start > 2 * reach[-1])
    return int(outside.sum()) if 2 * outside.sum() > len(start) else 0


def _other_unit(frame: pl.DataFrame) -> str | None:
    """Return the evidence that times may not be in µs. (ONNX Runtime writes whole µs.)"""
    times = pl.concat([frame["start"], frame["duration"]])
    times = times.filter(times != 0)
    if (times % _MICROSECOND != 0).any():
        return "times have fractions of a microsecond, which ONNX Runtime does not write"
    in_milliseconds = len(times) >= _FEWEST and bool((times % (1000 * _MICROSECOND) == 0).all())
    return (
        "all times are whole milliseconds, while ONNX Runtime writes microseconds"
        if in_milliseconds
        else None
    )


def _overlap(runs: pl.DataFrame) -> bool:
    start, end = runs["start"].to_numpy(), runs["end"].to_numpy()
    return len(runs) > 1 and bool(np.any(start[1:] < np.maximum.accumulate(end)[:-1]))


def _nest(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the events with ends that nest, and how many ends were moved by a microsecond. Start and
    duration are rounded down separately, so an event that ends together with the enclosing one may seem to
    end a microsecond later. The true end of the outer one is in that microsecond."""
    outer = (pl.col("cat") == "Session") | (
        pl.col("op_name").is_in(CONTROL) & (pl.col("kind") == "kernel_time")
    )
    numbered = frame.with_row_index("row")
    ends = numbered["end"].to_numpy().copy()
    holders = numbered.filter(outer).select("row", "tid", "start")
    moved: set[int] = set()
    for _ in range(64):  # as deep as graphs nest
        now = numbered.with_columns(pl.Series("end", ends))
        around = holders.with_columns(
            pl.Series("late", ends[holders["row"].to_numpy()] + _MICROSECOND)
        )
        both = around.join(
            now.select(pl.col("row").alias("inner"), "tid", pl.col("start").alias("inner_start"), "end"),
            left_on=["tid", "late"], right_on=["tid", "end"],
        )  # fmt: skip
        inner = both.filter(
            (pl.col("row") != pl.col("inner"))
            & (pl.col("inner_start") >= pl.col("start"))
            & (pl.col("inner_start") < pl.col("late") - _MICROSECOND)
            & ~pl.col("row").is_in(list(moved))
        )
        rows = inner["row"].unique().to_numpy()
        if not len(rows):
            break
        ends[rows] += _MICROSECOND
        moved.update(rows.tolist())
    return frame.with_columns(pl.Series("end", ends)), len(moved)


def _ranges(
    others: pl.DataFrame, nodes: pl.DataFrame, calls: Explained, stepped: bool
) -> pl.DataFrame:
    texts = [format_call(call, None) for call in calls.calls]
    ops = nodes.select(
        "tid", "start", "end",
        spread("text", texts, calls.call).cast(pl.Categorical),
        pl.lit("forward", pl.Categorical).alias("category"),
        pl.lit(DOMAIN, pl.Categorical).alias("domain"),
    )  # fmt: skip
    # most fences have no length and no information
    rest = others.filter((pl.col("cat") != "Node") | (pl.col("duration") > 0))
    is_run = (pl.col("cat") == "Session") & (pl.col("name") == RUN) & pl.lit(stepped)
    set_up = (pl.col("cat") == "Session") & pl.col("name").str.contains(_SET_UP)
    step = pl.format("step {}", is_run.cum_sum() - 1)
    rest = rest.sort("start").select(
        "tid", "start", "end",
        pl.when(is_run).then(step)
        .when(pl.col("cat") == "Node").then(pl.coalesce("kind", pl.lit("node")))
        .otherwise("name").cast(pl.Categorical).alias("text"),
        pl.when(is_run).then(pl.lit("step")).when(set_up).then(pl.lit("phase"))
        .cast(pl.Categorical).alias("category"),
        pl.when(is_run | set_up).then(pl.lit(DOMAIN)).otherwise(pl.lit(_RUNTIME))
        .cast(pl.Categorical).alias("domain"),
    )  # fmt: skip
    both = pl.concat([rest, ops]).sort(
        "start", "end", descending=[False, True], maintain_order=True
    )
    return both.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, pl.Int32).alias("process"),
        pl.col("tid").alias("thread"),
        "start", "end", "domain", "category", "text",
        pl.lit("pushpop", pl.Categorical).alias("kind"),
    )  # fmt: skip


def _note(
    trace: Trace, found: events.Events, nodes: pl.DataFrame, calls: Explained, model: str | None,
    extended: int,
) -> None:  # fmt: skip
    if found.truncated:
        how = found.truncated.removeprefix("truncated: ")
        message = f"{how}, as where the program was killed while it wrote: later events are lost"
        trace.note("warning", message, first=True)
    if found.dropped:
        trace.note(
            "warning",
            "ONNX Runtime dropped events: what ran later is not in the file",
            found.dropped,
        )
    full = int((found.frame["cat"] != "Kernel").sum())
    if full >= events.MOST_RECORDED and not found.dropped:
        trace.note(
            "warning", "the profiler stops at a million events: what ran later is not in the file"
        )
    names = ", ".join(calls.missing[:3]) + (" …" if len(calls.missing) > 3 else "")
    unit = _other_unit(found.frame)
    shapeless = nodes["inputs"].is_null().all() and len(nodes)
    for severity, message, count in (
        ("warning", f"events with damaged JSON or without a time, {NO_TIME}", found.left_out),
        ("info", "blocks of the file with unescaped names were repaired", found.repaired),
        (
            "info",
            "ends of runs and loops were moved by 1 µs, to which the profiler rounds",
            extended,
        ),
        ("info", WHOLE, int(unit is None)),
        ("warning", f"{unit}: they may be in another unit, so {NOT_KNOWN}", int(unit is not None)),
        ("info", _NO_SHAPES, int(model is None and bool(shapeless))),
        ("info", _NO_MODEL, int(model is None and not shapeless and len(nodes) > 0)),
        ("warning", _NOT_IN_MODEL.format(names=names), len(calls.missing) if model else 0),
        ("info", _UNFIT, len(calls.unfit)),
        ("info", _BY_ORDER, calls.by_order),
    ):
        if count:
            trace.note(severity, message, count)
