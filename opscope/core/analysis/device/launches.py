"""How kernels were launched: blocks and waves, and how many warps of a multiprocessor they can occupy.

Theoretical occupancy is the number of warps in the blocks that fit on a multiprocessor at one time, divided
by the warps that it can hold (``perf/devices/occupancy.py``). The estimated achieved occupancy uses the
blocks launched per multiprocessor if these are fewer: it is the figure that Kineto writes as "est. achieved
occupancy %" (pytorch/kineto, libkineto/src/DeviceProperties.cpp, ``kernelOccupancy``), in warps instead of
threads. Both are computed once for each distinct configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.kernels import shared_memory
from opscope.core.perf.devices.identify import find
from opscope.core.perf.devices.occupancy import LIMITS, Multiprocessor, multiprocessor, resident
from opscope.core.perf.devices.peaks import parse_cc
from opscope.core.tables.columns import compact, extent, gather, pairs
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.trace import Trace

#: Reasons for an unknown achieved occupancy: a closed list.
NO_CONFIGURATION: Final = "its grid and block were not recorded, or not read (lean=True)"
NO_DEVICE: Final = "the device is not known (--gpu gives it a name)"
NO_COUNT: Final = "the number of the device's multiprocessors is not known"
AMD: Final = "on AMD a grid counts blocks or threads, depending on the call that launched it"
SCALARS: Final = (
    "its scalar registers may limit it, or not: how many of AMD's are reserved is not published"
)
NO_RULES: Final = "the rules of this device's multiprocessors are not known"
NO_RESOURCES: Final = "its registers or its shared memory were not recorded"
NO_FIT: Final = "by the device's rules no block of it fits: the device or the sizes are wrong"
REASONS: Final = (
    NO_CONFIGURATION,
    NO_DEVICE,
    NO_COUNT,
    AMD,
    NO_RULES,
    NO_RESOURCES,
    SCALARS,
    NO_FIT,
)
#: ``limited_by`` if as many warps fit as the multiprocessor holds.
NOTHING: Final = "nothing"
#: Number of scalar registers per wavefront up to which they never limit occupancy on AMD, and number of
#: wavefronts per SIMD that fit with any number.
_FREE_SCALARS: Final = 80
_SURE_WAVES: Final = 6
#: The columns that distinguish the rows of a table of configurations, besides process and device.
CONFIGURATION: Final = ("grid", "block", "cluster", "registers", "shared_memory")
SCHEMA: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "grid": pl.Categorical,
    "block": pl.Categorical,
    "cluster": pl.Categorical,
    "registers": pl.Int32,
    "shared_memory": pl.Int64,
    "device_name": pl.String,
    "sm_count": pl.Int64,
    "blocks": pl.Int64,
    "blocks_per_sm": pl.Float64,
    "warps_per_block": pl.Int64,
    "resident_blocks": pl.Int64,
    "theoretical_occupancy": pl.Float64,
    "limited_by": pl.String,
    "achieved_occupancy": pl.Float64,
    "waves": pl.Float64,
    "tail_share": pl.Float64,
    "register_use": pl.Float64,
    "shared_use": pl.Float64,
    "clustered": pl.Boolean,
    "occupancy_reason": pl.String,
}


@dataclass(frozen=True, slots=True)
class Launches:
    """``table``: a row for each distinct launch configuration of a process on a device (``SCHEMA``);
    ``code``: the row of each kernel."""

    table: pl.DataFrame
    code: NDArray[np.int32]

    def of_kernels(self, name: str) -> pl.Series:
        """Return a column of the table for each kernel."""
        return gather(self.table[name], self.code)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """The known facts about a device of a process: its name, multiprocessors, and rules."""

    name: str | None = None
    sm_count: int | None = None
    sm: Multiprocessor | None = None
    amd: bool = False
    known: bool = False
    #: Whether the grids of its kernels count blocks.
    counts: bool = True


#: The columns of kernels that determine the configuration.
NEEDED: Final = (
    *("process", "device", "grid", "block", "cluster", "registers"),
    *("shared_static", "shared_dynamic", "attrs"),
)


def launches(trace: Trace, kernels: pl.DataFrame) -> Launches:
    """Return the distinct launch configurations of a trace's kernels, and which each kernel has.

    ``kernels``: the columns ``NEEDED`` of the trace's.
    """
    rows, code = _distinct(kernels)
    if not len(rows):
        return Launches(pl.DataFrame(schema=SCHEMA), code)
    configurations = kernels[rows].select(
        *("process", "device", "grid", "block", "cluster", "registers"),
        shared_memory().alias("shared_memory"),
        pl.col("attrs").str.extract(r'"sgpr":([0-9]{1,9})\b').cast(pl.Int64).alias("scalars"),
    )
    return Launches(_rate(configurations, _gpus(trace)), code)


def _distinct(kernels: pl.DataFrame) -> tuple[Ints, NDArray[np.int32]]:
    """Return a kernel of each distinct configuration, and for each kernel the number of its configuration."""
    number: NDArray[np.int32] = np.zeros(len(kernels), np.int32)
    if not len(kernels):
        return np.empty(0, np.int64), number
    # skip columns without values: for ten million kernels each would take 80 MB
    missing = kernels.null_count().row(0, named=True)
    stated = [name for name in kernels.columns if missing[name] < len(kernels)]
    for name in ("grid", "block", "cluster"):
        if name in stated:
            number = pairs(number, compact(kernels[name])[0])[2]
    for name in ("process", "device", "registers", "shared_static", "shared_dynamic"):
        if name in stated and (column := kernels[name]).n_unique() > 1:
            number = pairs(number, column.cast(pl.Int64).fill_null(NONE).to_numpy())[2]
    if kernels[:1]["attrs"].str.contains('"sgpr":', literal=True).any():
        # on AMD: few texts, shared by many kernels
        number = pairs(number, compact(kernels["attrs"].cast(pl.Categorical))[0])[2]
    rows = np.empty(int(number.max()) + 1, np.int64)
    rows[number] = np.arange(len(number))
    return rows, number


def _gpus(trace: Trace) -> dict[tuple[int | None, int | None], _Gpu]:
    """Return the facts about each (process, device)."""
    facts = ("name", "cc", "sm_count", "memory", "clock_khz", "mem_bandwidth")
    gpus = {}
    of_rocm = _in_blocks(trace)
    for process, device, *recorded in trace["devices"].select("process", "device", *facts).rows():
        name, cc, sm_count = recorded[:3]
        row, _ = find(*recorded)
        amd = row is not None and row.vendor == "amd"
        # HIP calls gfx90a "9.0" too: without a device name, this value does not distinguish AMD from NVIDIA
        sure = row is not None or bool(name) or cc != "9.0"
        of = (row.cc if row is not None else None) or (cc if sure else None)
        amd = amd or (of is not None and parse_cc(of) is None)
        gpus[process, device] = _Gpu(
            name=row.name if row is not None else name,
            sm_count=sm_count or (row.sm_count if row is not None else None),
            sm=multiprocessor(of) if of_rocm or not amd else None,
            amd=amd,
            known=of is not None or row is not None,
            counts=of_rocm or not amd,
        )
    return gpus


def _in_blocks(trace: Trace) -> bool:
    """Return whether grids count blocks on AMD too, as in traces of AMD's own tools; Kineto writes grids
    unchanged."""
    parts = trace.origin.get("parts") or [trace.origin]
    return all(isinstance(part, dict) and part.get("format") == "rocm" for part in parts)


def _rate(table: pl.DataFrame, gpus: dict[tuple[int | None, int | None], _Gpu]) -> pl.DataFrame:
    """Return the configurations with the derived columns; one device at a time, because each has its own
    rules."""
    table = table.with_row_index("row").with_columns(
        extent("grid").alias("blocks"), extent("block").alias("threads")
    )
    recorded = table["cluster"].null_count() < len(table)
    parts = [
        _on(part, gpus.get((process, device), _Gpu()), recorded)
        for (process, device), part in table.group_by("process", "device", maintain_order=True)
    ]
    return pl.concat(parts).sort("row").select(*SCHEMA).cast(dict(SCHEMA.items()))


def _on(part: pl.DataFrame, gpu: _Gpu, clusters: bool) -> pl.DataFrame:
    """Return the configurations of one device with the derived columns. ``clusters``: whether the source
    records clusters."""
    cc = parse_cc(gpu.sm.cc) if gpu.sm is not None else None
    none = False if clusters or (cc is not None and cc < (9, 0)) else None
    clustered = pl.when(extent("cluster") > 1).then(True).otherwise(pl.lit(none, pl.Boolean))
    usable = gpu.counts and bool(gpu.sm_count)
    per_sm = pl.col("blocks") / gpu.sm_count if usable else pl.lit(None, pl.Float64)
    part = part.with_columns(
        pl.lit(gpu.name, pl.String).alias("device_name"),
        pl.lit(gpu.sm_count, pl.Int64).alias("sm_count"),
        per_sm.alias("blocks_per_sm"),
        clustered.alias("clustered"),
    )
    part = _scalars(pl.concat([part, _resident(part, gpu.sm)], how="horizontal"), gpu)
    warps = gpu.sm.warps if gpu.sm is not None else None
    used = pl.min_horizontal("blocks_per_sm", "resident_blocks") * pl.col("warps_per_block")
    complete = pl.all_horizontal(pl.col("blocks_per_sm", "resident_blocks").is_not_null())
    fits = pl.col("resident_blocks") > 0
    waves = pl.when(fits).then(pl.col("blocks_per_sm") / pl.col("resident_blocks"))
    why = (
        pl.when(pl.any_horizontal(pl.col("blocks", "threads").is_null()))
        .then(pl.lit(NO_CONFIGURATION))
        .when(not gpu.counts)
        .then(pl.lit(AMD))
        .when(not gpu.known)
        .then(pl.lit(NO_DEVICE))
        .when(not gpu.sm_count)
        .then(pl.lit(NO_COUNT))
        .when(gpu.sm is None)
        .then(pl.lit(NO_RULES))
        .when(pl.col("scalar_limit"))
        .then(pl.lit(SCALARS))
        .when(pl.col("resident_blocks").is_null())
        .then(pl.lit(NO_RESOURCES))
        .when(~fits)
        .then(pl.lit(NO_FIT))
    )
    return (
        part.with_columns(
            waves.alias("waves"),
            pl.when(complete & fits).then(used / warps).alias("achieved_occupancy"),
            why.alias("occupancy_reason"),
        )
        .with_columns(
            pl.when(fits).then(pl.col("resident_blocks", "theoretical_occupancy", "limited_by")),
            (1 - pl.col("waves") / pl.col("waves").ceil()).alias("tail_share"),
        )
        .with_columns(
            pl.when(pl.col("resident_blocks").is_not_null()).then(
                pl.col("register_use", "shared_use")
            )
        )
    )


def _scalars(part: pl.DataFrame, gpu: _Gpu) -> pl.DataFrame:
    """Add ``scalar_limit`` (whether scalar registers may limit the kernel), and reset what is unknown because
    of it.

    A SIMD of AMD's CDNA has 800. With 80 per wavefront, 8 wavefronts fit by every rule of LLVM, which is all
    that a SIMD holds; with more, 6 or 7 may fit, depending on how many are reserved (AMDGPUBaseInfo.cpp,
    getOccupancyWithNumSGPRs).
    """
    if not gpu.amd or gpu.sm is None:
        return part.with_columns(pl.lit(False).alias("scalar_limit"))
    are_large = pl.col("scalars").is_null() | (pl.col("scalars") > _FREE_SCALARS)
    is_sure = (
        pl.col("resident_blocks") * pl.col("warps_per_block") > _SURE_WAVES * gpu.sm.partitions
    )
    part = part.with_columns((are_large & is_sure).fill_null(False).alias("scalar_limit"))
    return part.with_columns(pl.when(~pl.col("scalar_limit")).then(pl.col(list(_RESIDENT))))


def _resident(part: pl.DataFrame, sm: Multiprocessor | None) -> pl.DataFrame:
    """Return the columns that follow from the rules of a multiprocessor; null if an input is unknown."""
    names = ("threads", "registers", "shared_memory")
    # every kernel has registers: 0 means that the source did not know the number
    is_stated = pl.all_horizontal(pl.col(names).is_not_null()) & (pl.col("registers") > 0)
    rows = part.select(is_stated.arg_true()).to_series().to_numpy().astype(np.int64)
    size = 32 if sm is None else sm.warp
    warps = pl.Series("warps_per_block", -(-part["threads"] // size), pl.Int64)
    columns: dict[str, tuple[Any, NDArray[Any]]] = {
        name: (kind, np.empty(0)) for name, kind in _RESIDENT.items()
    }
    if sm is None:
        rows = rows[:0]
    if sm is not None and len(rows):
        threads, registers, shared = (
            part[name].gather(rows).cast(pl.Int64).to_numpy() for name in names
        )
        fit = resident(sm, threads, registers, shared)
        occupied = fit.blocks * fit.warps / sm.warps
        which = fit.limiting() @ (1 << np.arange(len(LIMITS)))
        limits = np.where(occupied < 1, which, 0)
        values = (
            fit.blocks,
            occupied,
            limits,
            fit.blocks * fit.registers / sm.registers,
            fit.blocks * fit.shared / sm.shared,
        )
        columns = {
            name: (kind, value)
            for (name, kind), value in zip(_RESIDENT.items(), values, strict=True)
        }
    index = np.full(len(part), NONE, np.int64)
    index[rows] = np.arange(len(rows))
    spread = {
        name: gather(pl.Series(name, value, kind, strict=False), index)
        for name, (kind, value) in columns.items()
    }
    spread["limited_by"] = spread["limited_by"].replace_strict(_LIMIT_TEXTS, return_dtype=pl.String)
    return pl.DataFrame([warps, *spread.values()])


#: The columns of ``_resident``; ``limited_by`` as bits of ``LIMITS``.
_RESIDENT: Final = {
    "resident_blocks": pl.Int64,
    "theoretical_occupancy": pl.Float64,
    "limited_by": pl.Int64,
    "register_use": pl.Float64,
    "shared_use": pl.Float64,
}
_LIMIT_TEXTS: Final = {
    bits: ", ".join(name for index, name in enumerate(LIMITS) if bits >> index & 1) or NOTHING
    for bits in range(1 << len(LIMITS))
}


def launch_configurations(profile: Answers) -> Launches:
    """How kernels were launched: each distinct configuration, and the configuration of each kernel."""
    return launches(profile.trace, profile._own_columns("kernels", NEEDED)[0])
