"""How each column is shown on a terminal: its heading, its number format, and how it may be shortened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from . import units
from .column import Column as Documented
from .layout import Column
from .names import kernel, short_source

_flex = partial(Column, flexible=True)


def short_region(name: object) -> str:
    """Return ``0/1`` for ``Torch-Compiled Region: 0/1``."""
    return units.text(name).removeprefix("Torch-Compiled Region: ")


def kernels_in_order(names: object) -> str:
    """Return a sequence of kernels with the name of each as ``names.kernel`` writes it."""
    return " | ".join(kernel(name) for name in units.text(names).split(" | "))


def device_name(number: object) -> str:
    """Return ``cpu`` for -1, else the device's number."""
    return "cpu" if number == -1 else str(number)


def _rate(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else units.UNKNOWN


def _short_number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else units.UNKNOWN


#: How each column of a frame is shown; the values in the frames are in ns, bytes and FLOP.
KNOWN: Final[Mapping[str, Column]] = {
    column.key: column
    for column in (
        Column("share", "share", units.share),
        Column("running", "so far", units.share),
        Column("device_time", "time", units.time),
        Column("ideal_time", "at the roof", units.time),
        Column("efficiency", "efficiency", units.share),
        Column("attained_flops", "FLOP/s", units.flop_rate),
        Column("attained_bandwidth", "bytes/s", units.bandwidth),
        Column("intensity", "FLOP/B", units.ratio),
        Column("rated", "rated", units.share),
        Column("over", "above", units.share),
        Column("over_reason", "mostly"),
        Column("bound", "bound"),
        Column("peak", "peak", units.flop_rate),
        Column("known", "known", units.share),
        Column("mfu", "MFU", units.share),
        Column("hfu", "HFU", units.share),
        Column("done_flops", "done", units.flop),
        Column("model_flops", "model", units.flop),
        Column("time", "time", units.time),
        Column("how_many", "how many", units.count),
        Column("self_time", "self", units.time),
        Column("span", "recorded", units.time),
        Column("steps_span", "in steps", units.time),
        Column("steps_time", "own in steps", units.time),
        Column("cpu_time", "elapsed", units.time),
        Column("total", "total", units.time),
        Column("mean", "mean", units.time),
        Column("min", "min", units.time),
        Column("max", "max", units.time),
        Column("duration", "time", units.time),
        Column("start", "start ns", units.count),
        Column("end", "end ns", units.count),
        Column("calls", "calls", units.count),
        Column("kernels", "kernels", units.count),
        Column("flops", "FLOPs", units.flop),
        Column("matrix_flops", "matrix", units.flop),
        Column("vector_flops", "vector", units.flop),
        Column("bytes", "bytes", units.size),
        Column("region", "region", short_region),
        _flex("fused", "fused"),
        Column("shared_memory", "shared", units.size),
        Column("device", "device", device_name),
        Column("at_peak", "at the peak", units.size),
        Column("peak_memory", "peak", units.size),
        Column("reserved", "reserved", units.size),
        Column("in_use", "at the end", units.size),
        Column("allocated", "allocated", units.size),
        Column("released", "released", units.size),
        Column("allocations", "allocations", units.count),
        Column("window", "window", units.time),
        Column("communication_time", "communication", units.time),
        Column("communication_share", "of window", units.share),
        Column("computation_time", "computation", units.time),
        Column("overlap_time", "both", units.time),
        Column("overlap", "hidden", units.share),
        Column("message_bytes", "messages", units.size),
        Column("waiting_time", "waiting", units.time),
        Column("bus_bandwidth", "bus bandwidth", units.bandwidth),
        Column("offset_ns", "offset", units.time),
        Column("error_ns", "error", units.time),
        Column("spread_ns", "spread", units.time),
        Column("drift_ppm", "drift ppm", _short_number),
        _flex("op", "op", least=30, parts="words"),
        _flex("name", "name", kernel, least=40, parts="words"),
        _flex("kernel_sequence", "kernels in order", kernels_in_order, parts="words"),
        _flex("op_type", "type"),
        Column("direction", "direction"),
        _flex("inputs", "inputs", least=20, parts="arguments"),
        _flex("outputs", "outputs", parts="arguments"),
        _flex("params", "parameters"),
        Column("kind", "kind"),
        _flex("layer", "layer", cut="start", least=20, parts="words"),
        _flex("source", "source", short_source, least=24, parts="frames"),
        _flex("line", "line", short_source, least=24, parts="frames"),
        _flex("reason", "reason"),
        Column("tensor_core", "TC"),
    )
}
#: The function that writes a number of each unit; text, identifiers, yes and no are shown as text.
_WRITTEN: Final[Mapping[str, Callable[[object], str]]] = {
    "ns": units.time,
    "bytes": units.size,
    "FLOP": units.flop,
    "J": units.ratio,
    "W": units.ratio,
    "FLOP/s": units.flop_rate,
    "bytes/s": units.bandwidth,
    "FLOP/byte": units.ratio,
    "fraction": units.share,
    "count": units.count,
    "ppm": _short_number,
    "1/s": _rate,
}


def columns(
    keys: Sequence[str], documented: Iterable[Documented] = (), forms: Iterable[Column] = ()
) -> list[Column]:
    """Return the columns of ``keys`` for a table.

    A column's form is the one in ``forms``, else the one in ``KNOWN``, else the one for its documented
    unit; without any of these it is shown as text.
    """
    own = {column.key: column for column in forms}
    about = {column.name: column.unit for column in documented}
    return [own.get(key) or KNOWN.get(key) or _by_unit(key, about.get(key, "text")) for key in keys]


def _by_unit(key: str, unit: str) -> Column:
    title = key.replace("_", " ")
    written = _WRITTEN.get(unit)
    return _flex(key, title) if written is None else Column(key, title, written)
