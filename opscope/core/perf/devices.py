"""What a device can do at most: dense peaks per dtype, bandwidth, limits, from ``devices.toml``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

#: tomli is the standard library's tomllib under its older name.
_toml: Final[Any] = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

_NONE: Final[Mapping[str, float]] = MappingProxyType({})
#: Memory that the driver reports differs from the label: reserved, and GiB for GB.
_MEMORY_SLACK: Final = 0.2


@dataclass(frozen=True, slots=True)
class Device:
    """One model of device. Rates in FLOP/s, dense; bandwidth in bytes/s; sizes in bytes; clock in Hz.

    ``vector`` and ``tensor`` are by dtype (``f64 f32 tf32 f16 bf16 f8 f6 f4 i8``); what is absent is
    not known or not there. ``computed`` marks a device that has no row and was computed from its
    properties. ``note`` says what a reader must know (a slice of a GPU, a name without its memory).
    """

    name: str
    cc: str | None = None
    sm_count: int | None = None
    memory: int | None = None
    bandwidth: float | None = None
    l2: int | None = None
    clock: float | None = None
    vector: Mapping[str, float] = field(default_factory=lambda: _NONE)
    tensor: Mapping[str, float] = field(default_factory=lambda: _NONE)
    max_threads_per_sm: int | None = None
    max_warps_per_sm: int | None = None
    max_blocks_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_per_sm: int | None = None
    source: str = ""
    vendor: str = "nvidia"
    computed: bool = False
    note: str = ""

    def peak(self, dtype: str, tensor: bool) -> float | None:
        """Dense FLOP/s of a dtype on the tensor or the vector units; ``None`` where not known.

        On vector units a narrower dtype without a rate of its own runs at f32's; integers too.
        """
        table = self.tensor if tensor else self.vector
        if dtype == "?":
            return None
        key = width_class(dtype)
        if key in table:
            return table[key]
        if tensor:
            return table.get("tf32") if key == "f32" else None
        return table.get("f32") if key not in ("f64", "c128") else None


def width_class(dtype: str) -> str:
    """The key of a dtype's rate: every 8-bit float is ``f8``, integers by their width."""
    if dtype[:1] == "f" and dtype[2:3] == "e":  # f8e4m3fn, f6e2m3fn, f4e2m1
        return dtype[:2]
    return {"u8": "i8", "u4": "i4", "c64": "f32", "c128": "f64", "c32": "f16"}.get(dtype, dtype)


@cache
def _tables() -> dict[str, Any]:
    text = files(__package__).joinpath("devices.toml").read_text("utf-8")
    tables: dict[str, Any] = _toml.loads(text)
    return tables


@cache
def rows() -> tuple[tuple[re.Pattern[str], tuple[int, ...], Device], ...]:
    """Every row as (name pattern, memory sizes in bytes, device)."""
    out = []
    for row in _tables()["device"]:
        sizes = row["memory"] if isinstance(row["memory"], list) else [row["memory"]]
        limits = _limits(row["cc"])
        device = Device(
            name=row["name"],
            cc=row["cc"],
            sm_count=row["sm_count"],
            memory=int(sizes[0] * 1e9),
            bandwidth=row["bandwidth"] * 1e9,
            l2=int(row["l2"] * 2**20),
            clock=row["clock"] * 1e6,
            vector=_rates(row["vector"], 1e12),
            tensor=_rates(row["tensor"], 1e12),
            source=row["source"],
            vendor=row.get("vendor", "nvidia"),
            **limits,
        )
        pattern = re.compile(row["pattern"], re.IGNORECASE)
        out.append((pattern, tuple(int(n * 1e9) for n in sizes), device))
    return tuple(out)


def _rates(table: Mapping[str, float], unit: float) -> Mapping[str, float]:
    return MappingProxyType({dtype: rate * unit for dtype, rate in table.items()})


def _limits(cc: str | None) -> dict[str, Any]:
    row = _tables()["limits"].get(cc)
    if row is None:
        return {}
    return {
        "max_threads_per_sm": row["threads"],
        "max_warps_per_sm": row["warps"],
        "max_blocks_per_sm": row["blocks"],
        "registers_per_sm": row["registers"],
        "shared_per_sm": row["shared"] * 1024,
    }


def find(
    name: str | None,
    cc: str | None = None,
    sm_count: int | None = None,
    memory: int | None = None,
    clock_khz: int | None = None,
    mem_bandwidth: int | None = None,
) -> tuple[Device | None, str | None]:
    """The device of a name, checked against what else the trace tells of it.

    ``memory`` in bytes, ``mem_bandwidth`` in bytes/s. A row whose compute capability differs is not
    taken; the memory chooses between rows of one name; fewer multiprocessors than the row's are a
    slice of the device, and its rates are scaled. Without a row the device is computed from its
    properties, with a note; where those are missing too the result is ``(None, reason)``.
    """
    text = (name or "").strip()
    fits = [
        (sizes, device)
        for pattern, sizes, device in rows()
        if pattern.search(text) and (cc is None or device.cc == cc)
    ]
    if memory is not None and len(fits) > 1:
        near = [one for one in fits if any(_near(memory, size) for size in one[0])]
        fits = near or fits
    if fits:
        # of several patterns the one that says most of the name (H200 NVL before H200)
        sizes, device = max(fits, key=lambda one: len(one[1].name))
        if memory is not None and not any(_near(memory, size) for size in sizes):
            device = replace(device, note="the memory differs from the row's: a variant or a slice")
        if memory is not None:
            device = replace(device, memory=memory)
        if sm_count is not None and device.sm_count and sm_count != device.sm_count:
            device = _scaled(device, sm_count)
        return device, None
    if cc is not None:
        return _computed(text, cc, sm_count, memory, clock_khz, mem_bandwidth)
    if not text:
        return None, "the trace does not name its device: give it with --gpu"
    return None, f"no row for {text!r}, and the trace does not tell its compute capability"


def _near(size: int, label: int) -> bool:
    return abs(size - label) <= _MEMORY_SLACK * label


def _scaled(device: Device, sm_count: int) -> Device:
    share = sm_count / (device.sm_count or sm_count)
    return replace(
        device,
        sm_count=sm_count,
        vector=_rates(device.vector, share),
        tensor=_rates(device.tensor, share),
        note=f"{sm_count} of {device.sm_count} multiprocessors: rates scaled, bandwidth the whole device's",
    )


def _computed(
    name: str,
    cc: str,
    sm_count: int | None,
    memory: int | None,
    clock_khz: int | None,
    mem_bandwidth: int | None,
) -> tuple[Device | None, str | None]:
    rates = _tables()["per_clock"].get(cc)
    if rates is None:
        return None, f"no row for {name!r}, and no rates for compute capability {cc}"
    if sm_count is None or clock_khz is None:
        return (
            None,
            f"no row for {name!r}, and the trace does not tell its multiprocessors and clock",
        )
    unit = sm_count * clock_khz * 1e3
    device = Device(
        name=name or f"compute capability {cc}",
        cc=cc,
        sm_count=sm_count,
        memory=memory,
        bandwidth=float(mem_bandwidth) if mem_bandwidth else None,
        clock=clock_khz * 1e3,
        vector=_rates(rates["vector"], unit),
        tensor=_rates(rates["tensor"], unit),
        source="multiprocessors × clock × the architecture's rate",
        computed=True,
        note="computed from the device's properties: no row in devices.toml",
        **_limits(cc),
    )
    return device, None


def cpu(
    features: str, cores: int, hertz: float, bandwidth: float | None = None
) -> tuple[Device | None, str | None]:
    """A CPU's peaks from its instruction set: ``amx``, ``avx512_bf16``, ``avx512`` or ``avx2``.

    ``cores`` physical ones, ``hertz`` the clock under vector load, ``bandwidth`` in bytes/s.
    """
    rates = _tables()["cpu"].get(features.lower())
    if rates is None:
        return None, f"no rates for the instruction set {features!r}"
    scaled = _rates(rates, cores * hertz)
    return (
        Device(
            name=f"{cores} cores with {features}",
            sm_count=cores,
            bandwidth=bandwidth,
            clock=hertz,
            vector=scaled,
            tensor=scaled if features.lower() == "amx" else _NONE,
            source="Intel 64 and IA-32 Architectures Optimization Reference Manual",
            vendor="cpu",
            computed=True,
        ),
        None,
    )


def parse_cc(cc: str | None) -> tuple[int, int] | None:
    """``"9.0"`` as numbers; ``None`` where it is none (AMD's gfx names)."""
    found = re.fullmatch(r"(\d+)\.(\d+)", cc or "")
    return (int(found.group(1)), int(found.group(2))) if found else None
