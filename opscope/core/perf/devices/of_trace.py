"""Identify the device on which a trace was made, from its ``devices`` table."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from opscope.core.perf import tensorcore
from opscope.core.perf.devices.identify import CPU_EXAMPLE, find
from opscope.core.perf.devices.peaks import Device, parse_cc
from opscope.core.tables.trace import Trace

_FACTS: Final = ("name", "cc", "sm_count", "memory", "clock_khz", "mem_bandwidth")


def trace_device(
    devices: pl.DataFrame, on_gpu: bool = True, versions: pl.Series | None = None
) -> tuple[Device | None, str | None]:
    """Return the device of a trace's ``devices`` table, or the reason why it is not known.

    ``on_gpu``: work in the trace ran on a GPU, so if the table is empty the reason asks for a name. Otherwise
    the CPU is the device, if the processes' ``versions`` have its measured roofs. If there are several
    models, the first known one is returned, and its note says so.
    """
    models: list[tuple[str | int | None, ...]] = (
        devices.select(_FACTS).unique(maintain_order=True).rows()
    )
    if not models and not on_gpu and versions is not None:
        models = [(roofs,) for roofs in _of_versions(versions, "cpu_roofs")]
    devices_named = [find(*facts) for facts in models]  # type: ignore[arg-type]
    known_devices = [device for device, _ in devices_named if device is not None]
    if not devices_named and not on_gpu:
        cpus = _of_versions(versions, "cpu") if versions is not None else []
        return None, (
            f"nothing in the trace ran on a GPU, and the limits of its CPU{_bracketed(cpus)} are not known: "
            "run `opscope doctor --measure` once on that machine, before recording (or describe the CPU: "
            f"--gpu {CPU_EXAMPLE!r})"
        )
    if not known_devices:
        return None, devices_named[0][
            1
        ] if devices_named else "the trace names no device (--gpu gives it a name)"
    others = {device.name for device in known_devices} - {known_devices[0].name}
    if not others and len(known_devices) == len(devices_named):
        return known_devices[0], None
    unknown = len(devices_named) - len(known_devices)
    remarks = [f"also {', '.join(sorted(others))}"] if others else []
    remarks += [f"{unknown} that are not known"] if unknown else []
    note = (
        f"the trace has several models of device ({' and '.join(remarks)}): all work is compared with "
        f"{known_devices[0].name}"
    )
    return replace(
        known_devices[0], note="; ".join(filter(None, (known_devices[0].note, note)))
    ), None


def _of_versions(versions: pl.Series, name: str) -> list[str]:
    """Return the distinct values that the processes' versions have by this name."""
    texts = versions.cast(pl.String).str.json_path_match(f"$.{name}")
    values: list[str] = texts.drop_nulls().unique(maintain_order=True).to_list()
    return values


def _bracketed(names: list[str]) -> str:
    return f" ({', '.join(names[:2])})" if names else ""


def trace_target(trace: Trace) -> tensorcore.Target:
    """Return the hardware and the cuBLAS version of the trace's ops, for ``tensorcore.ready``."""
    return tensorcore.Target(_units(trace["devices"]), _cublas(trace["processes"]["versions"]))


def no_matrix_units(devices: pl.DataFrame) -> bool:
    """Return whether every device of the trace is known to have no Tensor Cores."""
    devices_named = [find(*facts)[0] for facts in devices.select(_FACTS).unique().rows()]
    return bool(devices_named) and all(
        device is not None and not device.tensor for device in devices_named
    )


def _units(devices: pl.DataFrame) -> tensorcore.Units:
    device, _ = trace_device(devices)
    if device is not None and device.vendor == "amd":
        return device.cc
    if device is not None and not device.tensor:
        return tensorcore.NO_UNITS
    distinct = devices["cc"].drop_nulls().unique().to_list()
    return parse_cc(distinct[0]) if len(distinct) == 1 else None


def _cublas(versions: pl.Series) -> tuple[int, ...] | None:
    """Return the major version of cuBLAS, which is CUDA's since 10.0; None if processes differ."""
    runtime = pl.Series(_of_versions(versions, "cuda_runtime_version"), dtype=pl.String)
    distinct = runtime.cast(pl.Int64, strict=False).drop_nulls().unique().to_list()
    return (distinct[0] // 1000,) if len(distinct) == 1 else None
