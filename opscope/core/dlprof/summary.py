"""DLProf's summary: the machine, the use of the wall clock, iterations, all ops and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.dlprof.groups import Groups
from opscope.core.dlprof.model import Model
from opscope.core.dlprof.rules import NOTHING, Spans, Usage, busy_share, clipped, usage
from opscope.core.dlprof.tables import using_tensor_cores
from opscope.core.job.clocks import gpus
from opscope.core.literals import json_object
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import merge
from opscope.core.tables.trace import IDLE_GPUS, Trace

#: Types of ops that read input data: of DLProf's and PyProf's markers, and the iterators of tf.data.
DATALOADERS: Final = frozenset({"DataLoader", "IteratorGetNext", "IteratorV2", "OneShotIterator"})
#: Types of ops that read and write files.
IO: Final = frozenset(
    {"ReadFile", "WriteFile", "TFRecordReader", "TFRecordReaderV2", "SaveV2", "RestoreV2", "load", "save"}
)  # fmt: skip
#: The frameworks' keys among the versions, by the name of the package.
_FRAMEWORKS: Final = {
    "torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "keras": "Keras",
    "mindspore": "MindSpore", "onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT",
}  # fmt: skip


def system(trace: Trace) -> dict[str, Any]:
    """Return the known facts about the machine and its software; None for unknown ones."""
    facts_of_processes = [
        facts_of_process
        for facts_of_process in map(json_object, trace["processes"]["versions"].to_list())
        if facts_of_process
    ]
    facts = {
        key: value
        for facts_of_process in reversed(facts_of_processes)
        for key, value in facts_of_process.items()
    }
    devices = trace["devices"]
    gpus = devices.unique(
        ["uuid"] if not devices["uuid"].null_count() else ["process", "device"],
        maintain_order=True,
    )
    idle = idle_gpus(trace)
    names = [*gpus["name"], *(gpu["name"] for gpu in idle)]
    named = list(dict.fromkeys(name for name in names if isinstance(name, str)))
    frameworks = trace["processes"]["framework"].drop_nulls().unique(maintain_order=True).to_list()
    versions = [_version(key, facts[key]) for key in _FRAMEWORKS if key in facts]
    framework = ", ".join(versions or frameworks) or None
    cudnn = facts.get("cudnn")
    return {
        "GPU Count": len(gpus) + len(idle) if trace.has("devices") else None,
        "GPU Name(s)": ", ".join(named) or None,
        "CPU Model": facts.get("cpu"),
        "GPU Driver Version": _driver(facts.get("driver")),
        "Framework": framework,
        "CUDA Version": _cuda(
            facts.get("cuda_driver") or facts.get("cuda_runtime_version") or facts.get("cuda")
        ),
        **({"cuDNN Version": cudnn} if cudnn else {}),
        "NSys Version": facts.get("nsys")
        or (trace.origin.get("version") if trace.origin.get("format") == "nsys" else None),
    }


def _version(package: str, version: object) -> str:
    text = str(version)
    name = _FRAMEWORKS[package]
    return text if text.startswith(name) else f"{name} {text}"


def _driver(value: object) -> str | None:
    """Return ``515.43.04``; Nsight Systems writes it as 5154304."""
    text = str(value) if value is not None else ""
    if text.isdecimal() and len(text) > 4:
        return f"{int(text[:-4])}.{text[-4:-2]}.{text[-2:]}"
    return text or None


def _cuda(value: object) -> str | None:
    """Return ``11.7``; CUDA writes it as 11070."""
    text = str(value) if value is not None else ""
    if text.isdecimal() and len(text) > 3:
        return f"{int(text) // 1000}.{int(text) % 1000 // 10}"
    return text or None


def figures(model: Model) -> dict[str, Any]:
    """Return the wall clock (ns) and the shares (percent) of it; None if the trace does not show it.

    Each duration is the mean over the visible GPUs, idle ones too. Work in an aggregated iteration counts by
    its time in that iteration, no matter which iteration launched it: a GPU runs behind the CPU.
    """
    within = model.within
    wall = int((within[1] - within[0]).sum())
    on_device = _has_device(model)
    unknown = _unproven(model.source.costs["tensor_core"])
    parts = _usage(model)

    def share(name: str, is_known: bool = True) -> float | None:
        total = sum(getattr(part, name) for part in parts)
        return total / len(parts) / wall * 100 if is_known and wall else None

    return {
        "Wall Clock Time (ns)": wall,
        "Tensor Core Kernel Utilization %": _on_tensor_cores(model) if on_device else None,
        "GPU Utilization %": _utilization(model) if on_device else None,
        "Tensor Core Kernel Duration %": share("tensor_core", on_device and not unknown),
        "Non-Tensor Core Kernel Duration %": share("other_kernels", on_device and not unknown),
        "Memory Duration %": share("memory", model.source.trace.has("memops")),
        "Dataloader Duration %": share("dataloader"),
        "IO Duration %": share("io"),
        "CPU Duration %": share("cpu"),
        "Other Duration %": share("other"),
    }


def _unproven(tensor_core: pl.Series) -> bool:
    """Whether nothing is proven to use Tensor Cores, and something may."""
    return bool(tensor_core.null_count()) and not tensor_core.any()


def _usage(model: Model) -> list[Usage]:
    """Return how the aggregated iterations were spent, by each visible GPU; by no GPU if there is none."""
    times = model.source.times
    types = model.ops["type"].gather(times["op"]).cast(pl.String)
    on_cpu = [
        merge(*spans)
        for spans in (
            _loading(model, types),
            _inside(times.filter(types.is_in(list(IO)))),
            _inside(times),
        )
    ]
    used = pl.col("tensor_core").fill_null(False)
    return [
        usage(
            model.within,
            _inside(ran.filter(used)),
            _inside(ran.filter(~used)),
            _inside(moved),
            *on_cpu,
        )
        for _, ran, moved in _on_each(model, *_running(model))
    ] or [usage(model.within, NOTHING, NOTHING, NOTHING, *on_cpu)]


def _on_tensor_cores(model: Model) -> float | None:
    """Return the share (percent) of Tensor Core kernels in the time of all kernels of eligible ops.

    The op is the innermost one that launched the kernel: copies and layouts inside a layer that multiplies
    are ops of their own. An op that uses Tensor Cores is eligible, whatever its type; an op of unknown type
    is eligible if the op around it is. Kernels without an op are left out. None if no eligible op ran a
    kernel, or if it is unknown whether their kernels used Tensor Cores.
    """
    using = using_tensor_cores(model).fill_null(False)
    around = model.ops["eligible"].fill_null(False) | using
    op, own = model.kernels["op"], model.kernels["tc_eligible"]
    eligible = pl.select(pl.coalesce(pl.lit(own), pl.lit(around.gather(op)))).to_series()
    eligible |= model.kernels["tensor_core"].fill_null(False)
    kernels = model.kernels.filter(eligible & model.ops["associated"].gather(op))
    used = kernels["tensor_core"]
    total = int(kernels["duration"].sum())
    if not total or (used.null_count() and not used.any()):
        return None
    return int(kernels.filter(used.fill_null(False))["duration"].sum()) / total * 100


def _has_device(model: Model) -> bool:
    trace = model.source.trace
    return trace.has("kernels") or trace.has("memops")


def _inside(frame: pl.DataFrame) -> Spans:
    timed = frame.drop_nulls(["start", "end"])
    return timed["start"].to_numpy(), timed["end"].to_numpy()


def _loading(model: Model, types: pl.Series) -> Spans:
    """Return the times in which the program waited for input data: loader ops, and waits that adapters
    record."""
    attribution = model.source.ops.attribution
    waits = np.flatnonzero(attribution.meaning.role == ROLE["loader"])
    ranges = attribution.trace["ranges"].select("start", "end")[waits]
    loads = model.source.times.filter(types.is_in(list(DATALOADERS))).select("start", "end")
    return _inside(pl.concat([ranges, loads]))


def _running(model: Model) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return all kernels, and all copies and sets, of the trace with their times."""
    trace, columns = model.source.trace, ("process", "device", "start", "end")
    kernels = trace["kernels"].select(columns)
    return kernels.with_columns(model.source.costs["tensor_core"]), trace["memops"].select(columns)


def _on_each(
    model: Model, kernels: pl.DataFrame, memops: pl.DataFrame
) -> Iterator[tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]]:
    """Yield, for each visible GPU, its rows of ``gpus``, its kernels, and its copies and sets."""
    numbers = gpus(model.source.trace)
    if not len(numbers):
        return
    on = ["process", "device"]
    ran, moved = (
        frame.join(numbers, on=on, how="left", nulls_equal=True) for frame in (kernels, memops)
    )
    for number in range(int(numbers["gpu"].max()) + 1):  # type: ignore[arg-type]
        yield tuple(frame.filter(gpu=number) for frame in (numbers, ran, moved))  # type: ignore[misc]
    for gpu in idle_gpus(model.source.trace):
        alone = pl.DataFrame({"device": [gpu["device"]]}, schema_overrides=numbers.schema)
        yield (
            pl.concat([numbers.clear(), alone], how="diagonal_relaxed"),
            ran.clear(),
            moved.clear(),
        )


def idle_gpus(trace: Trace) -> list[dict[str, Any]]:
    """Return ``device`` and ``name`` of the GPUs that the program saw but did not use; the profile may be a
    stranger's."""
    listed = trace.origin.get(IDLE_GPUS)
    return [
        {"device": gpu["device"], "name": gpu.get("name")}
        for gpu in (listed if isinstance(listed, list) else ())
        if isinstance(gpu, dict) and type(gpu.get("device")) is int and 0 <= gpu["device"] < 1 << 16
    ]


def devices(model: Model) -> pl.DataFrame:
    """One row per device: its number and name, its utilization (percent), and its times (ns)."""
    names = model.source.trace["devices"].select("process", "device", "name")
    of_idle = {gpu["device"]: gpu["name"] for gpu in idle_gpus(model.source.trace)}
    rows = []
    own = _on_each(model, model.kernels, model.memops)
    for (ours, ran, moved), (_, ever, _) in zip(
        own, _on_each(model, *_running(model)), strict=True
    ):
        named = ours.join(names, on=["process", "device"], how="left", nulls_equal=True)["name"]
        busy = busy_share(model.within, clipped_union(ever, model))
        rows.append(
            {
                "Device ID": ours["device"][0],
                "GPU Name": next(iter(named.drop_nulls()), of_idle.get(ours["device"][0])),
                "GPU Utilization %": None if busy is None else busy * 100,
                "Kernel Time (ns)": ran["duration"].sum(),
                "Memory Time (ns)": moved["duration"].sum(),
                "# Kernel Calls": len(ran),
            }
        )
    return pl.DataFrame(
        rows,
        schema={
            "Device ID": pl.Int64, "GPU Name": pl.String, "GPU Utilization %": pl.Float64,
            "Kernel Time (ns)": pl.Int64, "Memory Time (ns)": pl.Int64, "# Kernel Calls": pl.Int64,
        },
    )  # fmt: skip


def clipped_union(frame: pl.DataFrame, model: Model) -> Spans:
    """Return the union of the rows' times within the aggregated iterations."""
    spans = merge(*_inside(frame)) if len(frame) else NOTHING
    return clipped(spans, merge(*model.within))


def _utilization(model: Model) -> float | None:
    """Return the share (percent) of the time in which a device ran kernels, averaged over the devices."""
    shares = devices(model)["GPU Utilization %"].drop_nulls()
    mean: Any = shares.mean()
    return None if mean is None else float(mean)


def iteration_figures(model: Model) -> dict[str, Any]:
    """Return how many iterations there are, which are aggregated, and how long (ns) these are."""
    table = model.found.table
    kept = table.filter("aggregated")
    begins, ends = model.within
    lengths = pl.Series(ends - begins)
    spread: Any = lengths.std(ddof=0)
    return {
        "Total Iterations": len(table),
        "Aggregated Iterations": len(kept),
        "Start Iteration": kept["iteration"].min(),
        "Stop Iteration": kept["iteration"].max(),
        "Average Iteration Time (ns)": lengths.mean(),
        "Iteration Time Standard Deviation": spread,
    }


def all_ops(model: Model) -> pl.DataFrame:
    """Four rows: all ops, ops that use Tensor Cores, ops that could but do not, and all others.

    The last three are null if the trace does not show which ops use them.
    """
    ops, number = np.unique(model.times["op"].to_numpy(), return_inverse=True)
    groups = Groups(number.reshape(-1), len(ops))
    each = pl.DataFrame(
        {
            "gpu": groups.total(model.times["gpu"]),
            "cpu": groups.total(model.times["cpu"]),
            "eligible": model.ops["eligible"].gather(ops),
            "using": using_tensor_cores(model).gather(ops),
        }
    )
    uses, could = pl.col("using").fill_null(False), pl.col("eligible").fill_null(False)
    is_proven = not _unproven(each["using"])
    rows = {
        "All ops": (pl.lit(True), True),
        "Ops using TC": (uses, is_proven),
        "Ops eligible for TC but not using": (could & ~uses, is_proven),
        "All other ops": (~could & ~uses, is_proven),
    }
    return pl.concat(
        [
            each.filter(chosen).select(
                pl.lit(name).alias(""),
                _if_known(pl.col("gpu").sum(), is_known and _has_device(model)).alias(
                    "GPU Time (ns)"
                ),
                _if_known(pl.col("cpu").sum(), is_known).alias("CPU Time (ns)"),
                _if_known(pl.len(), is_known).alias("# Ops"),
            )
            for name, (chosen, is_known) in rows.items()
        ]
    )


def _if_known(value: pl.Expr, is_known: bool) -> pl.Expr:
    return (value if is_known else pl.lit(None)).cast(pl.Int64)


def all_kernels(model: Model) -> pl.DataFrame:
    """Four rows: all kernels, those on Tensor Cores, copies and sets, and the others; by distinct name.

    A row is null if its kernels or copies were not recorded, or if it is unknown which use Tensor Cores.
    """
    kernels, memops, trace = model.kernels, model.memops, model.source.trace
    used = kernels["tensor_core"].fill_null(False)
    ran, moved = trace.has("kernels"), trace.has("memops")
    is_proven = ran and not _unproven(kernels["tensor_core"])

    def row(name: str, is_known: bool, *parts: tuple[pl.DataFrame, str]) -> dict[str, Any]:
        total, api = (
            sum(table[key].sum() for table, _ in parts) for key in ("duration", "api_time")
        )
        distinct = sum(table[key].n_unique() for table, key in parts)
        return {
            "": name,
            "GPU Time (ns)": total if is_known else None,
            "CPU Time (ns)": api if is_known and trace.has("calls") else None,
            "# Kernels": distinct if is_known else None,
        }

    return pl.DataFrame(
        [
            row("All kernels", ran and moved, (kernels, "short"), (memops, "name")),
            row("Kernels using TC", is_proven, (kernels.filter(used), "short")),
            row("Memory", moved, (memops, "name")),
            row("All other kernels", is_proven, (kernels.filter(~used), "short")),
        ],
        schema={
            "": pl.String, "GPU Time (ns)": pl.Int64, "CPU Time (ns)": pl.Int64,
            "# Kernels": pl.Int64,
        },
    )  # fmt: skip
