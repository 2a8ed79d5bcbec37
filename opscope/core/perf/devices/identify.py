"""Identify the device of a trace: look up its name in ``devices.toml`` and check its properties."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from . import mig
from .peaks import MEASURED, Device, computed, cpu, parse_cc, rates, rows

#: Memory reported by the driver relative to the label: GiB for GB (+7 %), minus the share of ECC and driver.
_MEMORY: Final = (0.92, 1.08)
#: Clocks and bandwidths with a smaller relative difference are taken as those of the same board.
_SAME: Final = 0.02
_SAME_BANDWIDTH: Final = 0.05
#: The compute capability that HIP reports for AMD's targets.
_HIP: Final = {"gfx908": "9.0", "gfx90a": "9.0", "gfx942": "9.4", "gfx950": "9.5"}
#: Names that give only the vendor.
_VAGUE: Final = re.compile(r"(?:amd|nvidia|advanced micro devices.*|nvidia corporation)?", re.I)
_CPU: Final = re.compile(r"cpu\b|(?:avx|amx)\w*\b", re.IGNORECASE)
_CPU_PARTS: Final = (
    ("features", re.compile(r"\b((?:avx|amx)\w*)", re.IGNORECASE)),
    ("cores", re.compile(r"\b(\d+)\s*cores?\b", re.IGNORECASE)),
    ("clock", re.compile(r"([\d.]+)\s*GHz\b", re.IGNORECASE)),
)
#: An example of how a user describes a CPU.
CPU_EXAMPLE: Final = "CPU avx512 8 cores 2.5 GHz 100 GB/s 32 MB"
#: Pattern of what ``opscope doctor --measure`` writes about a CPU; its cache and its name may be missing.
CPU_MEASURED: Final = "CPU 8 cores f32 900 GFLOP/s f64 450 GFLOP/s 40 GB/s 32 MB of AMD EPYC 9B14"
_CPU_MEMORY: Final = re.compile(r"([\d.]+)\s*GB/s", re.IGNORECASE)
_CPU_CACHE: Final = re.compile(r"([\d.]+)\s*MB\b", re.IGNORECASE)
_CPU_RATES: Final = re.compile(r"\b(f32|f64)\s+([\d.]{1,12})\s*GFLOP/s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a device in a trace: compute capability, memory in bytes, bandwidth in bytes/s …"""

    cc: str | None = None
    sm_count: int | None = None
    memory: int | None = None
    clock_khz: int | None = None
    mem_bandwidth: int | None = None


_Row = tuple[tuple[int, ...], Device]


def find(
    name: str | None,
    cc: str | None = None,
    sm_count: int | None = None,
    memory: int | None = None,
    clock_khz: int | None = None,
    mem_bandwidth: int | None = None,
) -> tuple[Device | None, str | None]:
    """Return the device with this name, checked against its other properties in the trace, and None.

    ``memory`` is in bytes, ``mem_bandwidth`` in bytes/s. A row with another compute capability is
    rejected. The number of multiprocessors and the memory select among rows with the same name. The rates
    are scaled if the number of multiprocessors or the clock differs from the row's, and the device's
    ``note`` says so. A device without a name, or with only its vendor's, is identified if its properties
    fit exactly one row. A device without a row is computed from its properties, with a note; if these
    are missing too, the result is ``(None, reason)``.
    ``"CPU avx512 8 cores 2.5 GHz 100 GB/s 32 MB"`` describes a CPU, and so do the roofs that ``opscope doctor
    --measure`` has measured (``CPU_MEASURED``). A slice of a GPU
    (``NVIDIA H200 MIG 1g.18gb``) has its share of the board's rates, never all of them.
    """
    text = (name or "").strip()
    recorded = Properties(cc, sm_count, memory, clock_khz, mem_bandwidth)
    if _CPU.match(text):
        return _cpu(text)
    if _VAGUE.fullmatch(text):
        return _by_properties(text, recorded)
    if mig.is_slice(text):
        return _slice(text, recorded)
    named = _name(text)
    fits = [row for row in named if _same_cc(row[1], cc)]
    if fits:
        return _choose(fits, recorded), None
    if cc is not None:
        device, why = computed(text, cc, sm_count, memory, clock_khz, mem_bandwidth)
        if named and device is not None:
            other = named[0][1]
            note = f"{device.note} for compute capability {cc} ({other.name} has {other.cc})"
            device = replace(device, note=note)
        return device, why
    near = _near_names(text)
    hint = f"; similar names are {', '.join(near)}" if near else ""
    return (
        None,
        f"the device table has no row for {text!r}, and the trace does not record its compute "
        f"capability{hint}",
    )


def _choose(fits: Sequence[_Row], recorded: Properties) -> Device:
    """Return the row that fits best, with a note for each property that differs in the trace."""

    def distance(row: _Row) -> tuple[bool, bool]:
        sizes, device = row
        return (
            recorded.sm_count is not None and recorded.sm_count != device.sm_count,
            recorded.memory is not None and not _any_near(recorded.memory, sizes),
        )

    best = min(distance(row) for row in fits)
    left = [row for row in fits if distance(row) == best]
    sizes, device = left[0]
    notes = [device.note] if device.note else []
    if len(left) > 1:
        others = " or ".join(other.name for _, other in left[1:])
        notes.append(f"the trace does not distinguish it from {others}")
    share = 1.0
    if recorded.sm_count is not None and device.sm_count and recorded.sm_count != device.sm_count:
        share = recorded.sm_count / device.sm_count
        notes.append(
            f"{recorded.sm_count} of {device.sm_count} multiprocessors: rates scaled, bandwidth of the "
            f"whole device"
            if share < 1
            else f"{recorded.sm_count} multiprocessors where {device.name} has {device.sm_count}: rates "
            "scaled"
        )
        device = replace(device, sm_count=recorded.sm_count)
    if recorded.memory is not None:
        if not _any_near(recorded.memory, sizes):
            notes.append(
                f"{recorded.memory / 1e9:.0f} GB of memory where {device.name} has "
                f"{' or '.join(f'{size / 1e9:.0f}' for size in sizes)}: a variant or a slice"
            )
        device = replace(device, memory=recorded.memory)
    if recorded.clock_khz and device.clock:
        ratio = recorded.clock_khz * 1e3 / device.clock
        if abs(ratio - 1) > _SAME:
            share *= ratio
            notes.append(
                f"{recorded.clock_khz / 1e3:.0f} MHz where {device.name} has {device.clock / 1e6:.0f}: "
                f"rates scaled"
            )
            device = replace(device, clock=recorded.clock_khz * 1e3)
    # for AMD, runtimes compute a figure from the memory clock, and it is not the bandwidth
    wider = recorded.mem_bandwidth if device.vendor == "nvidia" else None
    if wider and device.bandwidth and abs(wider / device.bandwidth - 1) > _SAME_BANDWIDTH:
        notes.append(
            f"the trace gives {wider / 1e9:.0f} GB/s where {device.name} has "
            f"{device.bandwidth / 1e9:.0f}, which is used"
        )
    if share != 1:
        device = replace(
            device, vector=rates(device.vector, share), tensor=rates(device.tensor, share)
        )
    return replace(device, note="; ".join(notes)) if notes else device


def _slice(text: str, recorded: Properties) -> tuple[Device | None, str | None]:
    """Return the MIG slice that a name describes; ``recorded`` has the slice's memory and multiprocessors."""
    piece = mig.named(text)
    if piece is None:
        return None, f"{text!r} is a slice of a GPU (MIG), and its profile is not known"
    boards = [row for row in _name(piece.board) if _same_cc(row[1], recorded.cc)]
    cut = [mig.cut(board, sizes, piece, recorded.sm_count) for sizes, board in boards]
    fits: list[_Row] = [((piece.gb * 10**9,), device) for device in cut if device is not None]
    if not fits:
        which = (
            " or ".join(board.name for _, board in boards) or f"{piece.board!r}, which has no row"
        )
        return None, f"the device table has no slice {piece.profile} (MIG) of {which}"
    return _choose(fits, recorded), None


def _name(text: str) -> list[_Row]:
    return list(rows(text))


def _by_properties(text: str, recorded: Properties) -> tuple[Device | None, str | None]:
    """Return the only row with this number of multiprocessors, memory and compute capability."""
    nameless = f"the trace names its device only {text!r}" if text else "the trace names no device"
    advice = "--gpu gives it a name"
    if recorded.sm_count is None or recorded.memory is None:
        return None, f"{nameless} ({advice})"
    fits = [
        (sizes, device)
        for sizes, device in rows()
        if device.sm_count == recorded.sm_count
        and _any_near(recorded.memory, sizes)
        and _same_cc(device, recorded.cc)
        and (not text or device.vendor == text.lower())
    ]
    facts = f"{recorded.sm_count} multiprocessors and {recorded.memory / 1e9:.0f} GB"
    # parts that differ only in their name (MI210, a die of MI250) count as one
    if (
        len(
            {
                (device.bandwidth, *device.vector.items(), *device.tensor.items())
                for _, device in fits
            }
        )
        == 1
    ):
        device = _choose(fits[:1], recorded)
        note = f"{nameless}: {facts} fit only {' or '.join(each.name for _, each in fits)}"
        return replace(device, note="; ".join(filter(None, (note, device.note)))), None
    if (
        recorded.cc is not None
        and parse_cc(recorded.cc) is not None
        and recorded.clock_khz
        and not fits
    ):
        return computed(
            "",
            recorded.cc,
            recorded.sm_count,
            recorded.memory,
            recorded.clock_khz,
            recorded.mem_bandwidth,
        )
    which = f"{facts} fit " + (" and ".join(device.name for _, device in fits) or "no row")
    return None, f"{nameless}, and {which} ({advice})"


def _cpu(text: str) -> tuple[Device | None, str | None]:
    figures, _, model = text.partition(" of ")
    rates = _CPU_RATES.findall(figures)
    if rates:
        return _measured_cpu(text, figures, rates, model[:200])
    matches = {part: pattern.search(text) for part, pattern in _CPU_PARTS}
    missing = [part for part, match in matches.items() if match is None]
    if missing:
        return (
            None,
            f"the description of a CPU lacks {' and '.join(missing)}; an example: {CPU_EXAMPLE!r}",
        )
    features, cores, clock = (match.group(1) for match in matches.values() if match is not None)
    memory, cache = _CPU_MEMORY.search(text), _CPU_CACHE.search(text)
    try:
        hertz = float(clock) * 1e9
        bandwidth = float(memory.group(1)) * 1e9 if memory is not None else None
        size = round(float(cache.group(1)) * 2**20) if cache is not None else None
    except ValueError:
        return None, f"{text!r} contains a malformed number"
    return cpu(features, int(cores), hertz, bandwidth, size)


def _measured_cpu(
    text: str, figures: str, found: Sequence[tuple[str, str]], model: str
) -> tuple[Device | None, str | None]:
    """Return the CPU with the rates that were measured on it."""
    of_cores, memory, cache = (
        pattern.search(figures) for pattern in (dict(_CPU_PARTS)["cores"], _CPU_MEMORY, _CPU_CACHE)
    )
    cores = of_cores.group(1) if of_cores is not None else "?"
    try:
        return Device(
            name=f"{cores} cores of {model or 'a CPU'}",
            bandwidth=float(memory.group(1)) * 1e9 if memory is not None else None,
            llc=round(float(cache.group(1)) * 2**20) if cache is not None else None,
            vector={dtype.lower(): float(rate) * 1e9 for dtype, rate in found},
            source=MEASURED,
            vendor="cpu",
            computed=True,
            note="dtypes other than f64 are compared with f32's rate, above which bf16 and int8 may run",
        ), None
    except ValueError:
        return None, f"{text!r} contains a malformed number"


def _same_cc(device: Device, cc: str | None) -> bool:
    return (
        cc is None or cc in (device.cc, _HIP.get(device.cc or "")) or cc.split(":")[0] == device.cc
    )


def _any_near(size: int, labels: Sequence[int]) -> bool:
    low, high = _MEMORY
    return any(low * label <= size <= high * label for label in labels)


def _near_names(text: str) -> list[str]:
    """Return at most six names of rows that contain every word of the text."""
    words = text.lower().split()
    names = [device.name for _, device in rows() if all(w in device.name.lower() for w in words)]
    return names[:6] if words else []
