"""The content of one file about a TensorRT engine, and how its JSON is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.core.tensorrt_layers import Layer, NotLayers, layers_of
from opscope.readers.errors import BadInput
from opscope.readers.rows import TWICE, decode, is_appended

#: Shares in a log have one digit after the point.
ROUNDED_SHARE: Final = 0.05
#: The most runs that a timing file may have: an hour of 1 kHz.
MOST_RUNS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A layer's times as trtexec states them, in ms, over all runs; ``share`` in percent."""

    name: str
    total_ms: float
    mean_ms: float | None
    median_ms: float | None
    percentage: float | None


@dataclass(frozen=True, slots=True)
class Times:
    """The times of an engine's layers over ``runs`` runs, and the totals if the source states them."""

    runs: int | None
    layers: tuple[LayerTime, ...]
    total: LayerTime | None = None


@dataclass(frozen=True, slots=True)
class Stated:
    """One line of the performance summary: its numbers by name, ``min`` … ``p99`` in ms."""

    name: str
    values: Mapping[str, float]


@dataclass(slots=True)
class Part:
    """The content of one file about an engine; fields that it lacks are empty."""

    path: Path
    kinds: set[str] = field(default_factory=set)
    layers: list[Layer] = field(default_factory=list)
    bindings: list[str] = field(default_factory=list)
    times: Times | None = None
    #: The records of a timing file, one a run, in its own names and ms.
    runs: list[dict[str, float]] = field(default_factory=list)
    stated: list[Stated] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    version: str | None = None
    notes: list[tuple[str, str, int]] = field(default_factory=list)


def of_json(path: Path, text: bytes) -> Part:
    """Return the content of a JSON file. Raises BadInput, which says what is wrong with it."""
    document = _json(path, text)
    part = Part(path)
    if isinstance(document, Mapping):
        for keys, read in _OBJECTS:
            if any(key in document for key in keys):
                read(part, document)
                return part
    elif isinstance(document, list):
        first = next((mapping for mapping in document if isinstance(mapping, Mapping)), {})
        for keys, list_reader in _LISTS:
            if any(key in first for key in keys):
                list_reader(part, document)
                return part
        if not document:
            raise BadInput(path, "an empty list: trtexec wrote no runs and no layers")
    raise BadInput(path, "JSON that is not of a TensorRT engine")


def _json(path: Path, text: bytes) -> Any:
    try:
        # a layer's name may not be UTF-8, and trtexec writes "nan" for a share of nothing
        return decode(text.decode("utf-8", "replace").encode(), Any)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(path, f"JSON that ends early or is damaged ({error})") from error


# ------------------------------------------------------------------------------ objects


def _layers(part: Part, document: Mapping[str, Any]) -> None:
    if "Layers" not in document:  # one layer alone (IEngineInspector.get_layer_information)
        document = {"Layers": [document]}
    try:
        part.layers = layers_of(document)
    except NotLayers as error:
        raise BadInput(part.path, f"not the layers of an engine: {error}") from error
    if not part.layers:
        raise BadInput(part.path, 'its list "Layers" is empty')
    bindings = document.get("Bindings")
    if isinstance(bindings, list):
        part.bindings = [binding for binding in bindings if isinstance(binding, str)]
    part.kinds.add("layers")


#: A file of TREx has the summary's numbers without their names, in this order.
_IN_ORDER: Final = ("min", "max", "mean", "median")
_PERCENTILES: Final[Mapping[int, tuple[str, ...]]] = {1: ("p99",), 3: ("p90", "p95", "p99")}


def _performance(part: Part, document: Mapping[str, Any]) -> None:
    summary = document.get("performance_summary")
    for name, value in summary.items() if isinstance(summary, Mapping) else ():
        if isinstance(value, list):
            numbers = [number(item) for item in value]
            names = (*_IN_ORDER, *_PERCENTILES.get(len(numbers) - 4, ()))
            pairs = zip(names, numbers, strict=False)
            part.stated.append(
                Stated(name, {key: value for key, value in pairs if value is not None})
            )
        elif (figure := number(value)) is not None:
            part.stated.append(Stated(name, {"value": figure}))
    options = document.get("inference_options")
    part.options = _texts(options)
    device = document.get("device_information")
    if isinstance(device, Mapping):
        part.device = dict(device)
    part.kinds.add("performance")


def _build(part: Part, document: Mapping[str, Any]) -> None:
    for which in ("model_options", "build_options"):
        part.options.update(_texts(document.get(which)))
    part.kinds.add("build")


def _texts(texts: object) -> dict[str, str]:
    if not isinstance(texts, Mapping):
        return {}
    plain = (str, int, float)
    return {str(k)[:256]: str(v)[:1024] for k, v in texts.items() if isinstance(v, plain)}


# ------------------------------------------------------------------------------ lists


def _profile(part: Part, document: list[Any]) -> None:
    runs: int | None = None
    rows = []
    nameless, timeless = 0, list[str]()
    for entry in document:
        if not isinstance(entry, Mapping):
            raise BadInput(part.path, "a layer's times are not an object")
        name, total = entry.get("name"), number(entry.get("timeMs"))
        if not isinstance(name, str):
            count = entry.get("count")
            if isinstance(count, int) and 0 <= count < 1 << 40:
                runs = count
            nameless += total is not None
            continue
        if total is None or total < 0:
            timeless.append(name)
            continue
        mean, median, share = (
            number(entry.get(k)) for k in ("averageMs", "medianMs", "percentage")
        )
        rows.append(LayerTime(name, total, mean, median, share))
    if timeless and not rows:
        raise BadInput(part.path, f"the layer {timeless[0][:80]!r} has no time")
    if not rows:
        raise BadInput(part.path, "it has times of no layer")
    if nameless:
        part.notes.append(("warning", "layers without a name, left out", nameless))
    if timeless:
        part.notes.append(("warning", "layers without a time, left out", len(timeless)))
    part.times = Times(runs, tuple(named_apart(once(rows, part.notes))))
    part.kinds.add("times")


def once(rows: list[LayerTime], notes: list[tuple[str, str, int]]) -> list[LayerTime]:
    """Return the layers without repetitions (rows equal in all columns). Rows count as repeated if the
    shares show it or, without shares, if all rows are. ``notes`` receives their number."""
    kept = [*dict.fromkeys(rows)]
    total, rest = (sum(row.percentage or 0 for row in some) for some in (rows, kept))
    rounded = max(1, ROUNDED_SHARE * len(rows))
    again = total > 100 + rounded and rest >= 100 - rounded
    if len(kept) == len(rows) or not (again if total else min(Counter(rows).values()) > 1):
        return rows
    what = "layers that the file holds again, equal in all columns: counted once"
    notes.append(("warning", what, len(rows) - len(kept)))
    return kept


def named_apart(rows: list[LayerTime]) -> list[LayerTime]:
    """Give repeated names the suffix that the inspector's layers have (``_2``, ``_3`` …)."""
    seen: dict[str, int] = {}
    renamed = []
    for row in rows:
        seen[row.name] = uses = seen.get(row.name, 0) + 1
        name = f"{row.name}_{uses}" if uses > 1 else row.name
        renamed.append(
            LayerTime(name, row.total_ms, row.mean_ms, row.median_ms, row.percentage)
            if uses > 1
            else row
        )
    return renamed


def _timing(part: Part, document: list[Any]) -> None:
    if len(document) > MOST_RUNS:
        raise BadInput(part.path, f"it has {len(document)} runs, more than {MOST_RUNS}")
    for entry in document:
        record = {} if not isinstance(entry, Mapping) else entry
        run = {key: value for key, raw in record.items() if (value := number(raw)) is not None}
        if "computeMs" not in run or "latencyMs" not in run:
            raise BadInput(part.path, "a run without computeMs and latencyMs")
        part.runs.append(run)
    if is_appended(pl.Series([hash(tuple(run.items())) for run in part.runs])):
        part.runs = part.runs[: len(part.runs) // 2]
        part.notes.append(("warning", TWICE, len(part.runs)))
    part.kinds.add("runs")


def _devices(part: Part, document: list[Any]) -> None:
    part.device = dict(next(entry for entry in document if isinstance(entry, Mapping)))
    if len(document) > 1:
        part.notes.append(("info", "devices in TREx's metadata: the first is shown", len(document)))
    part.kinds.add("device")


def number(value: object) -> float | None:
    """Return a finite number that TensorRT may have written, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        parsed = float(value)
    except OverflowError:
        return None
    return parsed if math.isfinite(parsed) and abs(parsed) < 1e15 else None


_OBJECTS: Final[tuple[tuple[tuple[str, ...], Callable[[Part, Mapping[str, Any]], None]], ...]] = (
    (("Layers", "LayerType"), _layers),
    (("performance_summary",), _performance),
    (("model_options", "build_options"), _build),
)
_LISTS: Final[tuple[tuple[tuple[str, ...], Callable[[Part, list[Any]], None]], ...]] = (
    (("count", "timeMs"), _profile),
    (("computeMs", "latencyMs"), _timing),
    (("ComputeCapability", "COMPUTE_CAPABILITY_MAJOR"), _devices),
)
