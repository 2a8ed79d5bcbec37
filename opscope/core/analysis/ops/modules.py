"""The tree of modules: the time, FLOPs, bytes and memory of each layer and of the layers inside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.analysis.ops.trees import Shape, folded
from opscope.core.attribution.enclosing import Context
from opscope.core.perf.tensorcore import MATRIX_FAMILIES
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.units import count, size
from opscope.core.question.words import columns
from opscope.core.schema import SEARCHED
from opscope.core.tables.columns import known_sum
from opscope.core.tables.forest import Forest
from opscope.core.tables.intervals import NONE, Ints

#: The kinds of rows.
WHOLE, MODULE, GROUP, OUTSIDE, REASON = "whole", "module", "group", "outside", "reason"
#: The names of the rows that are not modules.
NAMES: Final = {WHOLE: "(all)", OUTSIDE: "(outside any module)"}
#: Columns that are sums over the module and all modules inside it, of the columns of ``_own``.
_TOTALS: Final = {
    "device_total": "device_self",
    "forward_part": "forward_self",
    "backward_part": "backward_self",
    "rest_part": "other_self",
    "host_total": "host_self",
    "kernels": "kernels",
    "flops": "flops",
    "bytes": "bytes",
    "allocated": "allocated",
    "at_peak": "at_peak",
}
#: The number of ops that may compute and whose cost is unknown. Composite operators (``aten::to``) have no
#: cost either: that of the ops inside them counts.
_UNPRICED: Final = "unpriced"
COLUMNS: Final = (
    *(
        "module_id",
        "parent_module",
        "depth",
        "module",
        "layer",
        "module_type",
        "row_kind",
        "inside",
    ),
    *("module_calls", "call_time", "device_self", "device_total", "share"),
    *("forward_part", "backward_part", "rest_part", "host_self", "host_total"),
    *("kernels", "flops", "bytes", "allocated", "at_peak"),
)
#: The columns of ``sums`` that are needed.
NEEDED: Final = (
    *("layer", "direction", "device_time", "self_time", "kernels", "flops", "bytes", "op_type"),
)
#: A path with more parts than this is merged below its first parts: the trace is untrusted data.
_DEEPEST: Final = 64
_CLASS: Final = re.compile(r"(.+?)(?:_\d+)?\Z")
_ALONE: Final = "nn.Module: "
#: Separator between the names of nodes that a library merged into one (TensorRT's layers).
_JOINED: Final = " + "


def modules(
    sums: pl.DataFrame,
    gaps: pl.DataFrame,
    memory: pl.DataFrame,
    called: pl.DataFrame,
    typed: bool,
    deepest: int | None = None,
) -> pl.DataFrame:
    """Return one row per module, after the one around it, siblings by device time; then the time outside.

    ``sums``: rows as of ``totals.op_sums``, ``gaps``: of ``totals.unattributed``, ``memory``: of
    ``memory.memory_by_op``, ``called``: of ``module_calls``. ``typed``: whether the parts of paths are
    classes with numbers, as in Kineto. ``deepest``: modules below this depth count in the modules around
    them. Every row's ``_self`` columns add up to the first row's totals. Times in ns.
    """
    own = _own(sums, memory).join(called, on="layer", how="full", coalesce=True, nulls_equal=True)
    nodes = _tree(own["layer"].drop_nulls().to_list(), typed)
    if deepest is not None:
        nodes, own = _fold(nodes, own, deepest)
    outside = own.filter(pl.col("layer").is_null()).with_columns(
        row_kind=pl.lit(OUTSIDE), module=pl.lit(NAMES[OUTSIDE]), parent=pl.lit(0, pl.Int64)
    )
    reasons = gaps.select(
        module=pl.format("({})", pl.col("reason").cast(pl.String)),
        row_kind=pl.lit(REASON),
        parent=pl.lit(0, pl.Int64),
        device_self=pl.col("time").cast(pl.Int64),
        other_self=pl.col("time").cast(pl.Int64),
        kernels=pl.col("kernels").cast(pl.Int64),
    )
    inside = nodes.join(own.drop_nulls("layer"), on="layer", how="left")
    frame = pl.concat([inside.sort("number"), outside, reasons], how="diagonal_relaxed")
    tree = _order(_with_totals(frame))
    return tree if len(tree) > 1 else tree.clear()  # nothing ran


def _own(sums: pl.DataFrame, memory: pl.DataFrame) -> pl.DataFrame:
    """Return one row per layer (null: none) with the sums of the ops that it called itself."""
    direction = pl.col("direction").cast(pl.String)
    forward, backward = (direction == word for word in ("forward", "backward"))
    device = pl.col("device_time")

    def part(chosen: pl.Expr, name: str) -> pl.Expr:
        is_timed = device.is_not_null().any()
        return pl.when(is_timed).then(device.filter(chosen.fill_null(False)).sum()).alias(name)

    ops = sums.group_by("layer").agg(
        known_sum("device_time").alias("device_self"),
        part(forward, "forward_self"),
        part(backward, "backward_self"),
        part(~(forward | backward).fill_null(False), "other_self"),
        pl.col("self_time").sum().alias("host_self"),
        pl.col("kernels").sum(),
        known_sum("flops"),
        known_sum("bytes"),
        (pl.col("flops").is_null() & _computes()).sum().cast(pl.Int64).alias(_UNPRICED),
    )
    on_gpu = (memory["device"] >= 0).any()
    direct = (
        memory.filter((pl.col("device") >= 0) if on_gpu else pl.lit(True))
        .with_columns(pl.col("layer").cast(pl.String))
        .group_by("layer")
        .agg(known_sum("bytes").alias("allocated"), known_sum("at_peak"))
    )
    return ops.with_columns(pl.col("layer").cast(pl.String)).join(
        direct, on="layer", how="full", coalesce=True, nulls_equal=True
    )


def _computes() -> pl.Expr:
    """Whether an op is a matrix product, or an unknown op."""
    family = pl.col("op_type").cast(pl.String)
    return family.is_null() | family.is_in(list(MATRIX_FAMILIES))


def module_calls(context: Context) -> pl.DataFrame:
    """Return per layer that has ranges: layer, module_calls, call_time (ns; calls inside a call of the same
    layer are not counted again; null if no call has a length, as where only ops name their layers)."""
    calls: dict[str, int] = {}
    time: dict[str, int] = {}
    for tree, texts, value, called in context.layers():
        counts = np.bincount(value[called], minlength=len(texts))
        placed, call = value[tree.order], called[tree.order]
        outermost = call & ~Forest(tree.parent).inside_alike(placed)
        lasted = np.zeros(len(texts), np.int64)
        np.add.at(lasted, placed[outermost], (tree.end - tree.start)[outermost])
        for number in np.flatnonzero(counts).tolist():
            layer = texts[number]
            calls[layer] = calls.get(layer, 0) + int(counts[number])
            time[layer] = time.get(layer, 0) + int(lasted[number])
    return pl.DataFrame(
        {
            "layer": list(calls),
            "module_calls": list(calls.values()),
            "call_time": [time_of_layer or None for time_of_layer in time.values()],
        },
        schema={"layer": pl.String, "module_calls": pl.Int64, "call_time": pl.Int64},
    )


def _tree(layers: Iterable[str], typed: bool) -> pl.DataFrame:
    """Return the nodes: number, parent, module, layer, module_type, row_kind; the first is the whole.

    A path's parts are separated by ``/``, or by ``.`` if it has no ``/``. The parent of a layer is the
    longest other layer that its path begins with; the parts of the path between the two are modules that are
    never called themselves (a list of blocks).
    """
    all_layers = set(layers)
    number = {"": 0}
    rows: list[tuple[int, int | None, str, str | None, str | None, str]] = [
        (0, None, NAMES[WHOLE], None, None, WHOLE)
    ]
    for layer in sorted(all_layers):
        above = ""
        for end in _ends(layer, all_layers):
            path = layer[:end]
            if path not in number:
                name = path[len(above) :].lstrip("./") if above else path
                kind = MODULE if path in all_layers else GROUP
                of = _CLASS.match(name) if typed and kind == MODULE else None
                number[path] = len(rows)
                rows.append((len(rows), number[above], name, path, of[1] if of else None, kind))
            above = path
    schema = {"number": pl.Int64, "parent": pl.Int64, "module": pl.String, "layer": pl.String}
    return pl.DataFrame(
        rows, schema={**schema, "module_type": pl.String, "row_kind": pl.String}, orient="row"
    )


def _ends(layer: str, all_layers: set[str]) -> list[int]:
    """Return where the enclosing paths of a layer end, and where its own path ends: at separators outside
    brackets."""
    first = layer.partition(_JOINED)[0]  # further nodes have paths of their own
    mark, level = "/" if "/" in first else ".", 0
    ends: list[int] = []
    for index, letter in enumerate(first[:SEARCHED]):
        level += (letter in "([{<") - (letter in ")]}>")
        if letter not in "./":
            continue
        path = layer[:index]
        ends_here = (letter == mark and level <= 0) or path in all_layers
        if ends_here and path.strip("./") and len(ends) < _DEEPEST:
            ends.append(index)
    return [*ends, len(layer)]


def _fold(
    nodes: pl.DataFrame, own: pl.DataFrame, deepest: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the nodes down to this depth, and ``own`` with deeper layers added to the kept ones."""
    forest = Forest(nodes["parent"].fill_null(NONE).to_numpy())
    stands = np.arange(len(nodes))
    for level in forest.levels[deepest + 1 :]:
        stands[level] = stands[forest.parent[level]]
    names = dict(zip(nodes["layer"], nodes["layer"].gather(stands), strict=True))
    names.pop(None, None)
    moved = own.with_columns(
        pl.col("layer").replace_strict(names, default=None, return_dtype=pl.String),
        # a merged module was not called as the module that it is merged into
        *(
            pl.when(pl.col("layer").replace_strict(names, default=None) == pl.col("layer"))
            .then(name)
            .alias(name)
            for name in ("module_calls", "call_time")
        ),
    )
    added = moved.group_by("layer").agg(map(known_sum, moved.columns[1:]))
    return nodes.filter(pl.Series(forest.level <= deepest)), added.select(moved.columns)


def _with_totals(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the sums over the rows inside each, and with their depth and number."""
    position = {number: index for index, number in enumerate(frame["number"].to_list())}
    parent = np.array(
        [NONE if above is None else position[above] for above in frame["parent"].to_list()],
        np.int64,
    )
    forest = Forest(parent)
    modules = frame["row_kind"].is_in([MODULE, GROUP]).cast(pl.Int64).to_numpy()
    totals = [
        pl.Series("module_id", np.arange(len(frame))),
        pl.Series("parent_module", parent).set(pl.Series(parent < 0), None),
        pl.Series("depth", forest.level),
        pl.Series("inside", forest.with_inside(modules) - modules),
        *(_total(frame[own], forest).alias(name) for name, own in _TOTALS.items()),
    ]
    # a sum of 0 says nothing of a module in which an op's cost is unknown
    is_told = (pl.col("flops") != 0) | (_total(frame[_UNPRICED], forest) == 0)
    # a module that called no op itself has a known own time of 0, unlike an op on a GPU whose kernels were
    # not captured
    without = pl.col("row_kind").is_in([GROUP, WHOLE, MODULE]) & pl.col("host_self").is_null()
    alone = [
        pl.when(without)
        .then(pl.when(pl.col(total).is_not_null().any()).then(0))
        .otherwise(own)
        .alias(own)
        for own, total in (("device_self", "device_total"), ("host_self", "host_total"))
    ]
    flops = pl.when(is_told).then("flops").alias("flops")
    table = frame.with_columns(totals).with_columns(*alone, flops)
    total = pl.col("device_total")
    of = total.first()
    # Polars multiplies by the reciprocal of a scalar: the whole would be 0.9999…
    share = pl.when(total == of).then(1.0).otherwise(total / of)
    return table.with_columns(pl.when((of > 0) & total.is_not_null()).then(share).alias("share"))


def _total(own: pl.Series, forest: Forest) -> pl.Series:
    """Return the sum of a column over each row and the rows inside it; null if no value is known."""
    is_stated = own.is_not_null().to_numpy().astype(np.int64)
    sums = forest.with_inside(own.fill_null(0).cast(pl.Int64).to_numpy())
    column: pl.Series = pl.Series(own.name, sums).set(
        pl.Series(forest.with_inside(is_stated) == 0), None
    )
    return column


def _order(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in the order of a tree: a row, then those inside it, siblings by their time."""
    time = [frame[name].fill_null(-1) for name in ("device_total", "host_total")]
    rank = pl.DataFrame([frame["module"], *time]).with_row_index("row")
    rank = rank.sort("device_total", "host_total", "module", descending=[True, True, False])
    by_time: Ints = rank["row"].to_numpy().astype(np.int64)
    place = np.empty(len(frame), np.int64)
    place[by_time] = np.arange(len(frame))
    above = frame["parent_module"].fill_null(NONE).to_numpy()
    moved = np.where(above >= 0, place[above], NONE)[by_time]
    order = by_time[np.argsort(Forest(moved).place, kind="stable")]
    number = np.empty(len(frame), np.int64)
    number[order] = np.arange(len(frame))
    return (
        frame[order]
        .with_columns(
            pl.Series("module_id", np.arange(len(frame))),
            pl.Series("parent_module", np.where(above >= 0, number[above], NONE)[order]).replace(
                NONE, None
            ),
        )
        .select(COLUMNS)
    )


def names_classes(layers: Iterable[str | None]) -> bool:
    """Whether the texts of layers are Kineto's, whose parts are a class and a number (``Linear_3``)."""
    named_layers = [layer for layer in layers if layer is not None]
    return bool(named_layers) and all(layer.startswith(_ALONE) for layer in named_layers)


def answer(profile: Answers, *, depth: int | None = None) -> pl.DataFrame:
    """The tree of modules: a row for each, after the one around it, siblings by device time.

    The first row is the whole profile. ``device_self`` and ``host_self`` are times of the ops that a
    module called itself; over all rows they add up to the first row's totals. What ran outside any
    module, and device time without an op, have rows of their own. Modules below ``depth`` are part of
    those around them. ``parent_module`` makes the tree; ``layer`` is the path by which other frames
    name the module. Raises ValueError if ``depth`` is below 1.
    """
    readings = profile.attribution.meaning.readings
    return modules(
        summed_columns(profile, NEEDED),
        profile.ask("unattributed", categories=True),
        profile.ask("memory_by_op", categories=True),
        module_calls(profile.of(op_index).context),
        names_classes(reading.layer for reading in readings if reading.role == "layer"),
        depth,
    )


_NONE = (
    "the trace names no modules: opscope run and init(layers=True) record them, and so does"
    " torch.profiler with with_modules or with_stack"
)


def modules_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the modules with the most time, as a tree."""
    frame = report.frame(profile)
    table = folded(report, frame, view, Shape("module_id", "parent_module", "module"))
    if not frame["row_kind"].is_in(["module", "group"]).any():
        return replace(table, footnotes=[*table.footnotes, _NONE])
    return table


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "modules()",
            (
                "one row per module, after the module around it, by device time; then what ran "
                "outside any"
            ),
            columns(
                "module_id parent_module depth module layer module_type row_kind inside "
                "module_calls call_time device_self device_total share forward_part "
                "backward_part rest_part host_self host_total kernels flops bytes "
                "allocated at_peak",
                """
                module_id: number: number of the row
                parent_module: number: module_id of the module around it; null for the whole
                depth: count: number of rows around it
                module: text: the last part of the module's path
                layer: text: path of the module; null for rows that are none
                module_type: text: the module's class; null if the trace does not tell
                row_kind: text: whole; module; group (holds modules and is never called, such as a list of
                    blocks); outside any module; or reason why there is no op
                inside: count: modules inside it
                module_calls: count: times that the module was called; null if the trace names it without
                    ranges of it
                call_time: ns: time on the host from the begin of the module's calls to their end, Python
                    included; null if the trace has no ranges of it
                device_self: ns: durations of the kernels, copies and sets of the ops that it called
                    itself; without a GPU, their self time; null if they were not captured
                share: fraction: device_total / device_total of the first row
                forward_part: ns: part of device_total in forward ops
                backward_part: ns: part of device_total in backward ops
                rest_part: ns: the rest of device_total: other directions, and time without an op
                host_self: ns: time on the host in ops that it called itself, in any direction
                host_total: ns: host_self of it and of the modules inside it
                kernels: count: kernels of it and of the modules inside it
                flops: FLOP: FLOPs of it and of the modules inside it, as far as they are known
                bytes: bytes: minimum bytes moved by it and the modules inside it, as far as known
                allocated: bytes: memory allocated by it and the modules inside it, added up
                at_peak: bytes: blocks of it and of the modules inside it in use at the device's peak
                """,
            ),
        ),
    ),
    parameters={"depth": parameters.count("the deepest level of modules", least=1, optional=True)},
    merged=lacking.THRESHOLDS,
    reports=(
        Report(
            name="modules",
            title="Modules",
            empty=_NONE,
            shown=(
                "module module_type module_calls share device_total device_self forward_part "
                "backward_part host_total call_time flops bytes at_peak"
            ),
            forms=(
                Column("module_type", "class", flexible=True, rank=6),
                Column("module_calls", "calls", count, rank=3),
                Column("at_peak", "at the peak", size, rank=7),
            ),
            table=modules_table,
            sums="device_self host_self",
            aliases=("module",),
        ),
    ),
)
