"""Read the peaks of devices from ``devices.toml``: dense rates per dtype, bandwidth, limits."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from opscope.core.schema import DTYPE_BITS, FLOATS

#: tomli is the same parser as tomllib, which is in the standard library since Python 3.11.
_toml: Final[Any] = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

#: The source of roofs that were measured on the machine itself.
MEASURED: Final = (
    "measured on the machine by opscope doctor --measure (NumPy's matrix product and copies)"
)
_NONE: Final[Mapping[str, float]] = MappingProxyType({})
_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})
#: Parts without Tensor Cores although others of their compute capability have them (TU116, TU117).
_WITHOUT: Final = re.compile(r"\bGTX\b|\bMX ?\d{3}\b|\bT\d{3,4}\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Device:
    """A model of device. Rates in FLOP/s, dense; bandwidth in bytes/s; sizes in bytes; clock in Hz.

    ``vector`` and ``tensor`` map dtypes to rates (``f64 f32 tf32 f16 bf16 f8 f6 f4 i8``); a missing dtype is
    not known or not supported. ``llc`` is a cache behind the L2. ``source`` names the vendor's document,
    ``checked`` the places where figures of the row were verified (``peaks``, ``memory``, ``units``).
    ``mig`` is the number of compute slices into which MIG divides the part, None if it does not support MIG.
    ``computed`` marks a device without a row, computed from its properties. ``note`` says what a reader
    must know: properties in the trace that differ from the row, a slice, an assumption.
    """

    name: str
    cc: str | None = None
    sm_count: int | None = None
    memory: int | None = None
    bandwidth: float | None = None
    l2: int | None = None
    llc: int | None = None
    clock: float | None = None
    vector: Mapping[str, float] = field(default_factory=lambda: _NONE)
    tensor: Mapping[str, float] = field(default_factory=lambda: _NONE)
    max_threads_per_sm: int | None = None
    max_warps_per_sm: int | None = None
    max_blocks_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_per_sm: int | None = None
    source: str = ""
    checked: Mapping[str, str] = field(default_factory=lambda: _NOWHERE)
    vendor: str = "nvidia"
    mig: int | None = None
    computed: bool = False
    note: str = ""

    def peak(self, dtype: str, tensor: bool) -> float | None:
        """Return the dense FLOP/s of a dtype on the tensor or the vector units; ``None`` if unknown.

        On vector units, narrower dtypes and integers without a rate of their own have the rate of f32. On
        tensor units, f32 has the rate of TF32 if the part has no matrix rate for f32 itself.
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

    def cache(self) -> int | None:
        """Return the size in bytes of the largest cache in front of the memory, None if unknown."""
        return max(filter(None, (self.l2, self.llc)), default=None)


def width_class(dtype: str) -> str:
    """Return the key of a dtype's rate: ``f8`` for every 8-bit float, integers by their width."""
    if dtype in FLOATS and DTYPE_BITS[dtype] <= 8:  # f8e4m3fn, f6e2m3fn, f4e2m1
        return f"f{DTYPE_BITS[dtype]}"
    return {"u8": "i8", "u4": "i4", "c64": "f32", "c128": "f64", "c32": "f16"}.get(dtype, dtype)


@cache
def _texts() -> list[str]:
    """The text of ``devices.toml`` before its devices, and the text of each device. A trace names few
    devices; parsing all takes 15 ms."""
    text = files(__package__).joinpath("devices.toml").read_text("utf-8")
    return text.split("\n[[device]]\n")


@cache
def tables() -> dict[str, Any]:
    """Return the tables before the devices: ``limits``, ``allocation``, ``per_clock``, ``cpu``."""
    parsed: dict[str, Any] = _toml.loads(_texts()[0])
    return parsed


def devices(name: str | None = None) -> list[dict[str, Any]]:
    """Return the devices as ``devices.toml`` has them, those with this name or all."""
    return [
        _toml.loads(text)
        for text in _texts()[1:]
        if name is None or re.search(_pattern(text), name, re.IGNORECASE)
    ]


def _pattern(text: str) -> str:
    return text.partition("\npattern = '")[2].partition("'\n")[0]


@lru_cache(maxsize=256)
def rows(name: str | None = None) -> tuple[tuple[tuple[int, ...], Device], ...]:
    """Return the rows of the devices with this name, or of all, as (memory sizes in bytes, device)."""
    out = []
    for row in devices(name):
        sizes = row["memory"] if isinstance(row["memory"], list) else [row["memory"]]
        device = Device(
            name=row["name"],
            cc=row["cc"],
            sm_count=row["sm_count"],
            memory=int(sizes[0] * 1e9),
            bandwidth=row["bandwidth"] * 1e9,
            l2=int(row["l2"] * 2**20),
            llc=int(row["llc"] * 2**20) if "llc" in row else None,
            clock=row["clock"] * 1e6,
            vector=rates(row["vector"], 1e12),
            tensor=rates(row.get("tensor", {}), 1e12),
            source=row["source"],
            checked=MappingProxyType(row.get("checked", {})),
            vendor=row.get("vendor", "nvidia"),
            mig=row.get("mig"),
            **_limits(row["cc"]),
        )
        out.append((tuple(int(n * 1e9) for n in sizes), device))
    return tuple(out)


def rates(table: Mapping[str, float], unit: float) -> Mapping[str, float]:
    """Return the table with every rate multiplied by ``unit``."""
    return MappingProxyType({dtype: rate * unit for dtype, rate in table.items()})


def _limits(cc: str | None) -> dict[str, Any]:
    row = tables()["limits"].get(cc)
    if row is None:
        return {}
    return {
        "max_threads_per_sm": row["threads"],
        "max_warps_per_sm": row["warps"],
        "max_blocks_per_sm": row.get("blocks"),
        "registers_per_sm": row["registers"],
        "shared_per_sm": row["shared"] * 1024,
    }


def computed(
    name: str,
    cc: str,
    sm_count: int | None,
    memory: int | None,
    clock_khz: int | None,
    mem_bandwidth: int | None,
) -> tuple[Device | None, str | None]:
    """Compute a device without a row: multiprocessors × clock × the compute capability's rate per clock.

    A GeForce part is assumed to have half the matrix rate of a professional one, as in the rows; a part
    known to have no Tensor Cores gets no matrix rates. Return (None, reason) if a property is missing.
    """
    rates_table = tables()["per_clock"]
    full = f"{cc} full" if f"{cc} full" in rates_table and "geforce" not in name.lower() else cc
    per_clock = rates_table.get(full)
    if per_clock is None:
        return (
            None,
            f"the device table has no row for {name!r}, and no rates for compute capability {cc}",
        )
    if sm_count is None or clock_khz is None:
        return (
            None,
            f"the device table has no row for {name!r}, and the trace does not record both its "
            f"number of multiprocessors and its clock",
        )
    unit = sm_count * clock_khz * 1e3
    device = Device(
        name=name or f"compute capability {cc}",
        cc=cc,
        sm_count=sm_count,
        memory=memory,
        bandwidth=float(mem_bandwidth) if mem_bandwidth else None,
        clock=clock_khz * 1e3,
        vector=rates(per_clock["vector"], unit),
        tensor=_NONE if _WITHOUT.search(name) else rates(per_clock["tensor"], unit),
        source="multiprocessors × clock × the architecture's rate",
        vendor="amd" if cc.startswith("gfx") else "nvidia",
        computed=True,
        note="computed from the device's properties: the device table has no row",
        **_limits(cc),
    )
    return device, None


def cpu(
    features: str,
    cores: int,
    hertz: float,
    bandwidth: float | None = None,
    cache: int | None = None,
) -> tuple[Device | None, str | None]:
    """Compute a CPU's peaks from its instruction set: ``avx2``, ``avx512``, ``avx512_bf16``, ``amx`` …

    ``cores``: physical cores; ``hertz``: the clock under vector load; ``bandwidth`` in bytes/s; ``cache``:
    bytes of the last level. ``devices.toml`` lists the instruction sets; it assumes two multiply-add units
    per core. Return (None, reason) for an unknown instruction set.
    """
    rates_of_cpu = tables()["cpu"].get(features.lower())
    if rates_of_cpu is None:
        names = ", ".join(tables()["cpu"])
        return None, f"no rates for the instruction set {features!r}; known are {names}"
    return (
        Device(
            name=f"{cores} cores with {features.lower()}",
            sm_count=cores,
            bandwidth=bandwidth,
            llc=cache,
            clock=hertz,
            vector=rates(rates_of_cpu["vector"], cores * hertz),
            tensor=rates(rates_of_cpu["tensor"], cores * hertz),
            source="Intel 64 and IA-32 Architectures Optimization Reference Manual",
            vendor="cpu",
            computed=True,
            note="" if bandwidth else "the memory bandwidth is not known",
        ),
        None,
    )


def parse_cc(cc: str | None) -> tuple[int, int] | None:
    """Return ``"9.0"`` as ``(9, 0)``, and ``None`` for other texts (AMD's gfx names)."""
    match = re.fullmatch(r"(\d+)\.(\d+)", cc or "")
    return (int(match.group(1)), int(match.group(2))) if match else None
