"""Make the trace of a TensorRT engine from its files.

Layers are specs. Their times are not events: trtexec states sums over many runs. Each layer with a time
becomes one kernel, as long as the layer's mean time, and the kernels follow each other as in one run. Runs of
a timing file are samples. The figures of a summary are kept unchanged, in addition to both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.rangetext import format_call
from opscope.core.schema import OpCall, ParamValue
from opscope.core.sizes import is_kernel_time
from opscope.core.tables.columns import utf8
from opscope.core.tables.trace import Trace
from opscope.core.tensorrt_layers import (
    FRAMEWORK,
    NAME_ONLY,
    RECORDED,
    STATED,
    TIME_ONLY,
    TIMES,
    Layer,
    bare_call,
)
from opscope.readers.errors import BadInput
from opscope.readers.sound import sound_trace

from .belonging import Engine, alone, stem, together
from .parts import ROUNDED_SHARE, LayerTime, Stated
from .runs import samples, wall_ms, without_warm_up

_NUMBER: Final = re.compile(r"[\d.]+")
MEANS: Final = (
    "times of layers are means over {runs}, one kernel a layer, laid end to end in the order of the "
    "engine: not events on a timeline, so gaps, overlaps and launches are not known"
)
_NAMES_ONLY: Final = (
    "layers of which the engine gives only the name: it was not built with detailed profiling"
    " verbosity"
)


def read(path: Path) -> Trace:
    """Return the trace of the engine of ``path`` and of the files beside it. Raises BadInput."""
    return _trace(alone(path))


def read_together(paths: Sequence[Path]) -> tuple[list[Trace], list[BadInput]]:
    """Return a trace for each engine of these files, and what cannot be read.

    Raises BadInput if one of them has the times of another engine than the layers beside it.
    """
    engines, failed = together(paths)
    return [_trace(engine) for engine in engines], failed


def _trace(engine: Engine) -> Trace:
    first = engine.parts[0]
    name = utf8(stem(first.path))
    layers_of = engine.first("layers")
    layers = layers_of.layers if layers_of else []
    notes: list[tuple[str, str, int]] = [
        note for part in (*engine.parts, *engine.beside) for note in part.notes
    ]
    if engine.beside:
        beside = ", ".join(part.path.name for part in engine.beside)
        notes.append(("info", f"read with the files of its name beside it: {beside}", 1))
    versions = [part.version for part in (*engine.parts, *engine.beside) if part.version]
    tables: dict[str, pl.DataFrame] = {}
    origin: dict[str, Any] = {}
    times_of = engine.first("times")
    timed = times_of.times.layers if times_of is not None and times_of.times is not None else ()
    specs = [*_layer_specs(name, layers, [layer.name for layer in timed], notes)]
    specs += _stated_specs(engine, name)
    if times_of is not None and times_of.times is not None:
        tables["kernels"] = _kernels(name, layers, times_of.times.layers, times_of.times.runs)
        specs += _time_specs(name, times_of.times.runs, times_of.times.layers)
        runs = times_of.times.runs
        notes.append(("info", MEANS.format(runs=_many(runs)), len(tables["kernels"])))
        origin["times"] = f"layers' means over {_many(runs)}, laid end to end"
        notes += _unmatched(layers, times_of.times.layers)
        notes += _lacking(times_of.times.layers)
        wild = sum(not _possible(layer, runs) for layer in times_of.times.layers)
        if wild:
            notes.append(("warning", "layers whose time is out of range, left out", wild))
        differ = sum(_differ(layer, runs) for layer in times_of.times.layers)
        if differ:
            notes.append(("warning", f"{DIFFERENT} {_many(runs)}: the mean is taken", differ))
    recorded = engine.first("runs")
    if recorded is not None:
        kept, warm_up, remark = without_warm_up(recorded.runs, engine)
        tables["samples"] = samples(kept)
        if remark:
            notes.append(remark)
        specs.append(_recorded_spec(name, kept, warm_up))
    tables["specs"] = _specs_frame(specs)
    tables["devices"] = _devices(engine)
    tables["processes"] = pl.DataFrame(
        {
            "process": [0],
            "name": [name],
            "framework": [FRAMEWORK],
            "versions": [json.dumps({"tensorrt": versions[0]}) if versions else None],
        },
        schema={
            "process": pl.Int32,
            "name": pl.String,
            "framework": pl.String,
            "versions": pl.String,
        },
    )
    origin |= {
        "format": "tensorrt", "tool": "TensorRT", "version": versions[0] if versions else None,
        "paths": engine.paths, "files": len(engine.paths), "gpu": True,
    }  # fmt: skip
    trace = sound_trace(tables, origin)
    for note in notes:
        trace.note(*note)
    return trace


def _lacking(layers: Sequence[LayerTime]) -> list[tuple[str, str, int]]:
    """Return a note if the shares of the layers do not add up to 100 %, as the shares of all layers do."""
    shares = [layer.percentage for layer in layers if layer.percentage is not None]
    total = sum(shares)
    if not shares or abs(total - 100) <= max(1, ROUNDED_SHARE * len(shares)):
        return []
    note = f"layers whose shares add up to {total:.3g} %: the file lacks layers, and totals lack their time"
    if not total < 100:
        note = "layers whose shares add up to over 100 %: some may be there twice"
    return [("warning", note, len(shares))]


def _many(runs: int | None) -> str:
    if runs is None:
        return "an unknown number of runs"
    return "1 run" if runs == 1 else f"{runs:,} runs"


# ------------------------------------------------------------------------------ specs

_Spec = tuple[str, str, str, str]


def _layer_specs(
    engine: str,
    layers: Sequence[Layer],
    timed: Iterable[str],
    notes: list[tuple[str, str, int]],
) -> Iterator[_Spec]:
    """Yield a spec per layer of the layer info, and per layer that only has a time."""
    bare = sum(layer.call is None for layer in layers)
    if bare:
        notes.append(("warning", _NAMES_ONLY, bare))
    for layer in layers:
        call = layer.call or bare_call(layer.name, NAME_ONLY)
        yield FRAMEWORK, engine, layer.name, format_call(call, None)
    listed = {layer.name for layer in layers}
    for name in timed:
        if name not in listed:
            yield FRAMEWORK, engine, name, format_call(bare_call(name, TIME_ONLY), None)


def _time_specs(engine: str, runs: int | None, times: Sequence[LayerTime]) -> Iterator[_Spec]:
    for time_ in times:
        params: dict[str, ParamValue] = {
            "runs": runs, "total_ms": time_.total_ms, "mean_ms": time_.mean_ms,
            "median_ms": time_.median_ms, "percentage": time_.percentage,
        }  # fmt: skip
        yield TIMES, engine, time_.name, _figures(params)


def _stated_specs(engine: Engine, name: str) -> Iterator[_Spec]:
    part = engine.first("performance")
    stated: list[Stated] = part.stated if part is not None else []
    for stated_entry in stated:
        yield STATED, name, stated_entry.name, _figures(stated_entry.values)
    times_of = engine.first("times")
    if times_of is not None and times_of.times is not None and times_of.times.total is not None:
        total = times_of.times.total
        yield TIMES + ".total", name, "Total", _figures(
            {"runs": times_of.times.runs, "total_ms": total.total_ms, "mean_ms": total.mean_ms,
             "median_ms": total.median_ms, "percentage": total.percentage}
        )  # fmt: skip
    options: dict[str, str] = {}
    for part in (*engine.parts, *engine.beside):
        options.update(part.options)
    for key, value in options.items():
        yield (
            FRAMEWORK + ".options",
            name,
            key,
            format_call(OpCall("trt::option", (), None, (("value", value),)), None),
        )


def _recorded_spec(engine: str, runs: Sequence[Mapping[str, float]], warm_up: int) -> _Spec:
    return (
        RECORDED,
        engine,
        "runs",
        _figures({"runs": len(runs), "warm_up_runs": warm_up, "wall_ms": wall_ms(runs)}),
    )


def _figures(values: Mapping[str, ParamValue]) -> str:
    params = tuple((key, value) for key, value in values.items() if value is not None)
    return format_call(OpCall("trt::figures", (), None, params), None)


def _specs_frame(rows: Sequence[_Spec]) -> pl.DataFrame:
    # a damaged file may hold half of a character, which Polars refuses
    valid = [tuple(text and utf8(text) for text in row) for row in rows]
    columns = list(zip(*valid, strict=True)) or [(), (), (), ()]
    frame = pl.DataFrame(
        dict(zip(("framework", "graph", "key", "text"), map(list, columns), strict=True)),
        schema=dict.fromkeys(("framework", "graph", "key", "text"), pl.String),
    )
    return frame.with_columns(pl.lit(0, pl.Int32).alias("process"))


# ------------------------------------------------------------------------------ kernels


#: The note on layers whose figures contradict each other.
DIFFERENT: Final = "layers whose mean time is not their time over"


def mean_ms(layer_time: LayerTime, runs: int | None) -> float:
    """The layer's mean time, ms: sum over runs, which has more digits than a printed mean."""
    if runs:
        mean = layer_time.total_ms / runs
        if (
            layer_time.mean_ms is None
            or abs(mean - layer_time.mean_ms) <= 0.01 * layer_time.mean_ms + 0.00006
        ):
            return mean
    return layer_time.total_ms if layer_time.mean_ms is None else layer_time.mean_ms


def _kernels(
    engine: str, layers: Sequence[Layer], times: Sequence[LayerTime], runs: int | None
) -> pl.DataFrame:
    """One kernel for each layer that takes time, in order, end to end."""
    calls = {layer.name: layer.call for layer in layers}
    index_of_layer = {layer.name: number for number, layer in enumerate(layers)}
    taken = [
        time_
        for time_ in times
        if (time_.total_ms > 0 or mean_ms(time_, runs) > 0) and _possible(time_, runs)
    ]
    if all(layer.name in index_of_layer for layer in taken):
        taken.sort(key=lambda layer: index_of_layer[layer.name])
    length = pl.Series([round(mean_ms(layer, runs) * 1e6) for layer in taken], dtype=pl.Int64)
    end = length.cum_sum()
    return pl.DataFrame(
        {
            "start": end - length,
            "end": end,
            "name": pl.Series(
                [_kernel_name(layer.name, calls.get(layer.name)) for layer in taken],
                dtype=pl.String,
            ),
            "op_key": pl.Series([f"{engine}/{layer.name}" for layer in taken], dtype=pl.String),
            "stream": pl.Series(
                [_stream(calls.get(layer.name)) for layer in taken], dtype=pl.Int64
            ),
        }
    ).with_columns(pl.lit(0, pl.Int32).alias("process"), pl.lit(0, pl.Int32).alias("device"))


def _possible(layer_time: LayerTime, runs: int | None) -> bool:
    return is_kernel_time(mean_ms(layer_time, runs) * 1e6)


def _differ(layer_time: LayerTime, runs: int | None) -> bool:
    """Whether a layer's mean differs from its sum over the runs, which logs print with two digits."""
    if not runs or layer_time.mean_ms is None:
        return False
    apart = abs(layer_time.total_ms / runs - layer_time.mean_ms)
    return apart > 0.01 * abs(layer_time.mean_ms) + 0.00006 + 0.006 / runs


def _kernel_name(layer: str, call: OpCall | None) -> str:
    """The tactic, which names the kernel; else the layer's type, else the layer."""
    if call is None:
        return layer
    return str(call.param("tactic") or call.param("type") or layer)


def _stream(call: OpCall | None) -> int:
    stream = None if call is None else call.param("stream")
    return stream if isinstance(stream, int) and abs(stream) < 1 << 62 else 0


def _unmatched(
    layers: Sequence[Layer], times: Sequence[LayerTime]
) -> Iterator[tuple[str, str, int]]:
    if not layers:
        return
    names_known, timed = {layer.name for layer in layers}, {time_.name for time_ in times}
    extra, without = len(timed - names_known), len(names_known - timed)
    if extra:
        yield "warning", "layers with a time that are not in the engine's layer info", extra
    if without:
        yield "info", "layers of the engine without a time: it ran with another profile", without


# ------------------------------------------------------------------------------ device


def _devices(engine: Engine) -> pl.DataFrame:
    """The device that TREx's metadata or the log names."""
    facts: dict[str, Any] = {}
    for part in (*engine.parts, *engine.beside):
        facts.update({k: v for k, v in part.device.items() if k not in facts})
    name = facts.get("Selected Device") or facts.get("Name") or _quote(facts.get("Device 0"))
    schema = {
        "process": pl.Int32, "device": pl.Int32, "name": pl.String, "uuid": pl.String,
        "cc": pl.String, "sm_count": pl.Int64, "memory": pl.Int64, "clock_khz": pl.Int64,
        "mem_bandwidth": pl.Int64,
    }  # fmt: skip
    if not isinstance(name, str):
        return pl.DataFrame(schema=schema)
    clock = _first(facts, "Compute Clock Rate", "Application Compute Clock Rate")
    khz = _first(facts, "CLOCK_RATE") if clock is None else clock * 1e6
    memory_clock = _first(facts, "Memory Clock Rate", "Application Memory Clock Rate")
    if memory_clock is None and (kilohertz := _first(facts, "MEMORY_CLOCK_RATE")) is not None:
        memory_clock = kilohertz / 1e6
    bits = _first(facts, "Memory Bus Width", "GLOBAL_MEMORY_BUS_WIDTH")
    memory = _first(facts, "Device Global Memory")
    total = _first(facts, "TotalMemory") if memory is None else memory * (1 << 20)
    uuid = facts.get("Selected Device UUID")
    row = {
        "process": 0, "device": 0, "name": name[:256],
        "uuid": uuid[:64] if isinstance(uuid, str) else None,
        "cc": _capability(facts),
        "sm_count": _whole(_first(facts, "SMs", "MULTIPROCESSOR_COUNT")),
        "memory": _whole(total),
        "clock_khz": _whole(khz),
        "mem_bandwidth": None if bits is None or memory_clock is None
        else _whole(bits / 8 * memory_clock * 2e9),
    }  # fmt: skip
    return pl.DataFrame([row], schema=schema)


def _quote(value: object) -> str | None:
    match = re.match(r'"([^"]+)"', value) if isinstance(value, str) else None
    return match[1] if match else None


def _capability(facts: Mapping[str, Any]) -> str | None:
    listed = facts.get("ComputeCapability")
    if isinstance(listed, list) and len(listed) == 2:
        return ".".join(str(number_part) for number_part in listed)
    value = facts.get("Compute Capability")
    return None if value is None else str(value)[:16]


def _first(facts: Mapping[str, Any], *keys: str) -> float | None:
    """The first of these facts, a number or a text that begins with one (``5120 bits (ECC enabled)``)."""
    for key in keys:
        value = facts.get(key)
        if isinstance(value, bool):
            continue
        match = _NUMBER.match(value) if isinstance(value, str) else None
        try:
            if isinstance(value, (int, float)):
                return float(value)
            if match:
                return float(match[0])
        except (ValueError, OverflowError):
            continue
    return None


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None and 0 <= value < 1e18 else None
