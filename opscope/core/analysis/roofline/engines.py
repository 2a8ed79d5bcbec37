"""TensorRT engines: their layers with times and costs, and the times of an engine's runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.roofline.efficiency import op_efficiencies
from opscope.core.attribution.specs import Specs
from opscope.core.perf.table import columns as costs_of
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.rangetext import call_of, format_tensor
from opscope.core.schema import OpCall, TensorSpec
from opscope.core.tables.columns import distinct_values
from opscope.core.tables.trace import Trace
from opscope.core.tensorrt_layers import (
    FRAMEWORK,
    KNOWN,
    PREFIX,
    RECORDED,
    SAMPLE,
    STATED,
    TIME_ONLY,
    TIMES,
)

LAYERS: Final = {
    "process": pl.Int32, "engine": pl.String, "layer": pl.String, "op": pl.String,
    "layer_type": pl.String, "role": pl.String, "precision": pl.String, "mean": pl.Float64,
    "median": pl.Float64, "share": pl.Float64, "total": pl.Float64, "runs": pl.Int64,
    "inputs": pl.String, "outputs": pl.String, "formats": pl.String, "tactic": pl.String,
    "origins": pl.String, "matrix_flops": pl.Int64, "vector_flops": pl.Int64, "flops": pl.Int64,
    "bytes": pl.Int64, "attained_flops": pl.Float64, "attained_bandwidth": pl.Float64,
    "efficiency": pl.Float64, "bound": pl.String, "reason": pl.String,
}  # fmt: skip
RUNS: Final = {
    "process": pl.Int32, "engine": pl.String, "measure": pl.String, "measured": pl.String,
    "runs": pl.Int64,
    **dict.fromkeys(("min", "max", "mean", "median", "p90", "p95", "p99", "total"), pl.Float64),
    "wall_time": pl.Float64, "throughput": pl.Float64,
}  # fmt: skip
#: The parts of a run's time, in the order of trtexec's summary.
MEASURES: Final = ("Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency")
_NAMES_ONLY: Final = (
    "the engine gives only the layer's name (it was not built with detailed verbosity)"
)
_ONLY_TIMES: Final = (
    "nothing describes the layer: only its time is known (trtexec --exportLayerInfo)"
)
_PERCENTILES: Final = (90, 95, 99)


def has_engines(trace: Trace) -> bool:
    """Whether the trace describes engines or runs of them."""
    named = trace["specs"]["framework"].cast(pl.String)
    domains = distinct_values(trace["ranges"]["domain"]).cast(pl.String).to_list()
    return bool(named.str.starts_with(FRAMEWORK).any()) or f"opscope.{FRAMEWORK}" in domains


def engine_layers(
    specs: pl.DataFrame, kernels: pl.DataFrame, ops: pl.DataFrame, efficiency: pl.DataFrame
) -> pl.DataFrame:
    """Return one row per layer of each engine, in the engine's order; the columns are ``LAYERS``.

    Times are those that trtexec states for the layer; without these, the durations of the kernels that ran in
    the layer, divided by its executions. Both are null if the layer was not timed. ``specs``: the table of
    ``Specs``; ``kernels``, ``ops``: the profile's frames; ``efficiency``: what ``op_efficiency`` returns.
    """
    where = ["process", "graph", "key"]
    layers, timed = _specs(specs, FRAMEWORK), _specs(specs, TIMES)
    timed = timed.join(layers, on=where, how="anti", nulls_equal=True)
    bare = timed.with_columns(pl.lit(None, pl.String).alias("text"))
    layers = pl.concat([layers, bare])
    if layers.is_empty():
        return pl.DataFrame(schema=LAYERS)
    calls = [None if text is None else call_of(text) for text in layers["text"]]
    rows = layers.select("process", pl.col("graph").alias("engine"), pl.col("key").alias("layer"))
    rows = pl.concat(
        [
            rows,
            pl.DataFrame([_describe(call) for call in calls], schema=_DESCRIBED),
            _costs(calls),
        ],
        how="horizontal",
    )
    only_times = pl.Series([call is None or call.param(KNOWN) == TIME_ONLY for call in calls])
    rows = rows.with_columns(
        pl.when(only_times & pl.col("flops").is_null())
        .then(pl.lit(_ONLY_TIMES))
        .otherwise("reason")
        .alias("reason")
    )
    keys = ["process", "engine", "layer"]
    rows = rows.unique(keys, keep="last", maintain_order=True)
    rows = rows.join(_stated_times(specs), on=keys, how="left", maintain_order="left")
    rows = rows.join(_kernel_times(kernels), on=keys[::2], how="left", maintain_order="left")
    stated = pl.col("stated_total").is_not_null()
    rows = rows.with_columns(
        pl.when(stated).then("stated_total").otherwise("seen_total").alias("total"),
        pl.when(stated).then("stated_runs").otherwise("seen_runs").alias("runs"),
        pl.when(stated)
        .then("stated_mean")
        .otherwise(pl.col("seen_total") / pl.col("seen_runs"))
        .alias("mean"),
        pl.when(stated).then("stated_median").otherwise("seen_median").alias("median"),
    )
    total = pl.col("total").sum().over("process", "engine")
    rows = rows.with_columns(
        pl.when(total > 0).then(pl.col("total") / total).alias("share"),
        *(
            pl.when(pl.col("mean") > 0).then(pl.col(work) / pl.col("mean") * 1e9).alias(rate)
            for work, rate in (("flops", "attained_flops"), ("bytes", "attained_bandwidth"))
        ),
    )
    rated = _rated(ops, efficiency)
    rows = rows.join(rated, on=keys[::2], how="left", maintain_order="left")
    return rows.select(pl.col(name).cast(dtype) for name, dtype in LAYERS.items())


_DESCRIBED: Final = {
    name: LAYERS[name]
    for name in (
        "op",
        "layer_type",
        "role",
        "precision",
        "inputs",
        "outputs",
        "formats",
        "tactic",
        "origins",
    )
}


def _specs(specs: pl.DataFrame, framework: str) -> pl.DataFrame:
    return specs.filter(pl.col("family") == framework).select("process", "graph", "key", "text")


def _describe(call: OpCall | None) -> dict[str, Any]:
    if call is None or not call.name.startswith(PREFIX):
        return {}
    formats = [str(call.param(side)) for side in ("format", "to") if call.param(side)]
    origins = call.param("origins")
    return {
        "op": call.name, "layer_type": call.param("type"), "role": call.param("role"),
        "precision": call.param("precision"), "inputs": _tensors(call.input_leaves()),
        "outputs": _tensors(call.output_leaves() or ()),
        "formats": " -> ".join(dict.fromkeys(formats)) or None, "tactic": call.param("tactic"),
        "origins": " + ".join(map(str, origins)) or None if isinstance(origins, tuple) else None,
    }  # fmt: skip


def _tensors(specs: Sequence[TensorSpec | None]) -> str:
    return ", ".join("_" if spec is None else format_tensor(spec) for spec in specs)


def _costs(calls: Sequence[OpCall | None]) -> pl.DataFrame:
    calls_read = [
        call if call is not None and call.name.startswith(PREFIX) else None for call in calls
    ]
    distinct = list(dict.fromkeys(call for call in calls_read if call is not None))
    number_of_call = {call: number for number, call in enumerate(distinct)}
    wanted = ["matrix_flops", "vector_flops", "flops", "bytes", "reason"]
    table = costs_of(distinct).select(wanted)
    row = pl.Series(
        [None if call is None else number_of_call[call] for call in calls_read], dtype=pl.UInt32
    )
    costs_of_layers = table[row.fill_null(0)] if len(table) else table.clear(len(row))
    return costs_of_layers.with_columns(
        pl.when(row.is_null())
        .then(pl.lit(_NAMES_ONLY) if name == "reason" else None)
        .otherwise(name)
        .alias(name)
        for name in wanted
    )


def _figures(
    specs: pl.DataFrame, framework: str
) -> Iterator[tuple[int | None, str, str, dict[str, Any]]]:
    for process, graph, key, text in _specs(specs, framework).iter_rows():
        call = call_of(text)
        if call is not None:
            yield process, graph, key, dict(call.params)


def _number(value: object, scale: float = 1.0) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value * scale if plain else None  # type: ignore[operator]


def _stated_times(specs: pl.DataFrame) -> pl.DataFrame:
    """The layers' times as trtexec states them, in ns."""
    rows = [
        {
            "process": process, "engine": engine, "layer": layer,
            "stated_runs": figures.get("runs") if isinstance(figures.get("runs"), int) else None,
            "stated_total": _number(figures.get("total_ms"), 1e6),
            "stated_mean": _number(figures.get("mean_ms"), 1e6),
            "stated_median": _number(figures.get("median_ms"), 1e6),
        }
        for process, engine, layer, figures in _figures(specs, TIMES)
    ]  # fmt: skip
    schema = {
        "process": pl.Int32, "engine": pl.String, "layer": pl.String, "stated_runs": pl.Int64,
        **dict.fromkeys(("stated_total", "stated_mean", "stated_median"), pl.Float64),
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema).unique(
        ["process", "engine", "layer"], keep="last", maintain_order=True
    )


def _kernel_times(kernels: pl.DataFrame) -> pl.DataFrame:
    """The time of each layer's kernels, over the executions of the layer."""
    ran = kernels.filter(pl.col("op").cast(pl.String).str.starts_with(PREFIX))
    each = ran.group_by("process", pl.col("layer").cast(pl.String), "op_id").agg(
        pl.col("duration").sum().cast(pl.Float64)
    )
    return each.group_by("process", "layer").agg(
        pl.col("duration").sum().alias("seen_total"),
        pl.len().cast(pl.Int64).alias("seen_runs"),
        pl.col("duration").median().alias("seen_median"),
    )


def _rated(ops: pl.DataFrame, efficiency: pl.DataFrame) -> pl.DataFrame:
    """Return the roofline of each layer: time at the roof over the time taken, and the bound of most of that
    time."""
    of = ops.select("op_id", "process")
    found = efficiency.filter(pl.col("op").cast(pl.String).str.starts_with(PREFIX)).join(
        of, on="op_id", how="left"
    )
    rated = pl.col("efficiency").is_not_null()
    return (
        found.with_columns(pl.col("layer").cast(pl.String), pl.col("bound").cast(pl.String))
        .group_by("process", "layer")
        .agg(
            (
                pl.col("ideal_time").filter(rated).sum() / pl.col("duration").filter(rated).sum()
            ).alias("efficiency"),
            pl.col("bound").filter(rated).sort_by(pl.col("duration").filter(rated)).last(),
        )
        .with_columns(
            pl.when(pl.col("efficiency").is_finite()).then("efficiency").alias("efficiency")
        )
    )


# ------------------------------------------------------------------------------ runs


def engine_runs(specs: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per measure of a run's time: as the runs were recorded, and as a summary states it.

    The columns are ``RUNS``; times are in ns, the throughput in runs per second. ``specs`` as for
    ``engine_layers``, ``samples``: the trace's table. The statistics of recorded runs follow trtexec: of n
    runs in order the percentile p is run n − 1 − ⌊n · (1 − p)⌋.
    """
    rows: list[dict[str, Any]] = []
    named = {process: (graph, figures) for process, graph, _, figures in _figures(specs, RECORDED)}
    values = samples.with_columns(pl.col("name").cast(pl.String))
    for process, (engine, figures) in named.items():
        mine = values.filter(pl.col("process") == process)
        wall = _number(figures.get("wall_ms"), 1e6)
        for measure in MEASURES:
            one = mine.filter(pl.col("name") == SAMPLE.format(measure))["value"].drop_nulls().sort()
            if len(one):
                row = {
                    "process": process,
                    "engine": engine,
                    "measure": measure,
                    "measured": "recorded",
                }
                rows.append({**row, **_statistics(one), **_rate(len(one), wall)})
    stated: dict[tuple[int | None, str], dict[str, dict[str, Any]]] = {}
    for process, engine, name, figures in _figures(specs, STATED):
        stated.setdefault((process, engine), {})[name] = figures
    for (process, engine), lines in stated.items():
        single = {name: _number(figures.get("value")) for name, figures in lines.items()}
        rate, wall_s = single.get("Throughput"), single.get("Total Host Walltime")
        total_s = single.get("Total GPU Compute Time")
        for measure, figures in lines.items():
            if "value" in figures:
                continue
            numbers = {key: _number(value, 1e6) for key, value in figures.items() if key in RUNS}
            rows.append(
                {
                    "process": process, "engine": engine, "measure": measure, "measured": "stated",
                    **numbers,
                    "runs": round(rate * wall_s) if rate and wall_s else None,
                    "total": total_s * 1e9 if total_s is not None and measure == "GPU Compute Time" else None,
                    "wall_time": None if wall_s is None else wall_s * 1e9, "throughput": rate,
                }
            )  # fmt: skip
    return pl.DataFrame(rows, schema=RUNS)


def _rate(runs: int, wall: float | None) -> dict[str, float | None]:
    return {"wall_time": wall, "throughput": runs / wall * 1e9 if wall else None}


def _statistics(values: pl.Series) -> dict[str, Any]:
    """Statistics of sorted values, as trtexec computes them."""
    count = len(values)
    late = {f"p{p}": values[max(count - 1 - int((1 - p / 100) * count), 0)] for p in _PERCENTILES}
    return {
        "runs": count, "min": values[0], "max": values[-1], "mean": values.mean(),
        "median": values.median(), "total": values.sum(), **late,
    }  # fmt: skip


def engine_specs(profile: Answers) -> pl.DataFrame:
    """The facts about the layers of engines, from ranges."""
    return Specs.of(profile.attribution.trace, profile.attribution.meaning).table


def answer(profile: Answers) -> pl.DataFrame:
    """The layers of TensorRT engines: times, precision, formats, tactic, origin and cost of each.

    Times that trtexec exported are means over many runs; otherwise they are of the layer's kernels.
    """
    kernels = profile.kernels(categories=True)
    specs, rated = profile.of(engine_specs), profile.of(op_efficiencies)
    return engine_layers(specs, kernels, profile.of(op_rows), rated)


def _by_time(layers: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in the engine's order, or the longest first where times are known."""
    return layers.sort("mean", descending=True, nulls_last=True, maintain_order=True)


def answer_runs(profile: Answers) -> pl.DataFrame:
    """The times of a TensorRT engine's runs: as trtexec recorded them, and as its summary states them."""
    return engine_runs(profile.of(engine_specs), profile.trace["samples"])


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "engine_layers()",
                "one row per layer of a TensorRT engine, in the engine's order",
                columns(
                    "process engine layer op layer_type role precision mean median share total "
                    "runs inputs outputs formats tactic origins matrix_flops vector_flops "
                    "flops bytes attained_flops attained_bandwidth efficiency bound reason",
                    """
                    layer: text: the layer's name in the engine
                    op: text: the layer's kind: TensorRT's parameter type, else its layer type
                    layer_type: text: TensorRT's layer type, which says how the layer is computed
                    role: text: compute, reformat, quantize, dequantize, no-op, constant or plugin; null
                        if the engine gives names only
                    precision: text: dtype of the layer's first input; tf32 if the tactic's name says so
                    mean: ns: mean time of one run of the layer; null if nothing timed it
                    median: ns: median time of one run of the layer
                    share: fraction: total / the total of all layers of the engine
                    total: ns: time of all runs added up
                    formats: text: arrangement of the inputs -> of the outputs: linear, NHWC8, NC/32HW32;
                        null if not stated
                    tactic: text: the tactic's name: the kernel, or the family of kernels, that computes
                        it
                    origins: text: layers of the original network that it computes
                    matrix_flops: FLOP: part of flops in products and convolutions, of one run
                    vector_flops: FLOP: part of flops in other operations, of one run
                    flops: FLOP: operations of one run
                    bytes: bytes: minimum bytes of one run, weights included
                    attained_flops: FLOP/s: flops / mean
                    attained_bandwidth: bytes/s: bytes / mean
                    efficiency: fraction: time at the roof / time taken
                    reason: text: why flops is null
                    """,
                ),
            ),
        ),
        merged=lacking.RUNS,
        reports=(
            Report(
                name="engine_layers",
                title="Layers of TensorRT engines, by time",
                empty=(
                    "no TensorRT engine is described (trtexec --exportLayerInfo, or --model beside a "
                    "trace)"
                ),
                shown=(
                    "layer share mean op role precision formats flops efficiency tactic origins"
                ),
                aliases=("tensorrt", "trt_layers"),
                arranged=_by_time,
            ),
        ),
    ),
    Question(
        answer=answer_runs,
        frames=(
            Frame(
                "engine_runs()",
                "one row per measure of a TensorRT engine's runs, and where it comes from",
                columns(
                    "process engine measure measured runs min max mean median p90 p95 p99 "
                    "total wall_time throughput",
                    """
                    measured: text: recorded: computed from the runs of a timing file, without those that
                        warm up; stated: by trtexec's summary
                    runs: count: runs that count
                    min: ns: shortest of the runs
                    max: ns: longest of the runs
                    mean: ns: mean of the runs
                    median: ns: median of the runs
                    total: ns: all runs added up
                    wall_time: ns: from the first run's start to the last run's end, on the host's clock
                    throughput: 1/s: runs / wall_time
                    """,
                ),
            ),
        ),
        merged=lacking.RUNS,
        reports=(
            Report(
                name="engine_runs",
                title="Runs of TensorRT engines",
                empty=(
                    "no runs of a TensorRT engine (trtexec --exportTimes, its log, or TREx's "
                    "profile.metadata.json)"
                ),
                shown="engine measure measured runs min mean median p90 p95 p99 max throughput",
                aliases=("trt_runs",),
            ),
        ),
    ),
)
