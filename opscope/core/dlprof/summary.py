"""DLProf's summary: the machine, what the wall clock was spent on, iterations, all ops and kernels."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.dlprof.groups import Groups
from opscope.core.dlprof.model import Model
from opscope.core.dlprof.rules import NOTHING, Spans, busy_share, clipped, usage
from opscope.core.dlprof.tables import using_tensor_cores
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import merge
from opscope.core.tables.trace import Trace

#: Types of ops that read input data: DLProf's and PyProf's marker, and the iterators of tf.data.
DATALOADERS: Final = frozenset({"DataLoader", "IteratorGetNext", "IteratorV2", "OneShotIterator"})
#: Types of ops that read and write files.
IO: Final = frozenset(
    {"ReadFile", "WriteFile", "TFRecordReader", "TFRecordReaderV2", "SaveV2", "RestoreV2", "load", "save"}
)  # fmt: skip
#: What versions call the frameworks, by the name of the package.
_FRAMEWORKS: Final = {
    "torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "keras": "Keras",
    "mindspore": "MindSpore", "onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT",
}  # fmt: skip


def system(trace: Trace) -> dict[str, Any]:
    """Return what is known of the machine and its software; None where nothing is."""
    facts_of_processes = [
        facts_of_process
        for facts_of_process in map(_facts, trace["processes"]["versions"].to_list())
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
    named = gpus["name"].drop_nulls().unique(maintain_order=True).to_list()
    frameworks = trace["processes"]["framework"].drop_nulls().unique(maintain_order=True).to_list()
    versions = [_version(key, facts[key]) for key in _FRAMEWORKS if key in facts]
    framework = ", ".join(versions or frameworks) or None
    cudnn = facts.get("cudnn")
    return {
        "GPU Count": len(gpus) if trace.has("devices") else None,
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


def _facts(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


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
    """Return the wall clock (ns) and the shares (percent) of it; None where the trace does not tell."""
    within = model.within
    wall = int((within[1] - within[0]).sum())
    kernels, memops = model.kernels, model.memops
    used = kernels["tensor_core"].fill_null(False)
    on_device = _has_device(model)
    types = model.ops["type"].gather(model.times["op"]).cast(pl.String)
    loading = _loading(model, types)
    spans = usage(
        within,
        _inside(kernels.filter(used)),
        _inside(kernels.filter(~used)),
        _inside(memops),
        loading,
        _inside(model.times.filter(types.is_in(list(IO)))),
        _inside(model.times),
    )
    total, on_tensor = (int(table["duration"].sum()) for table in (kernels, kernels.filter(used)))

    def share(part: int | None) -> float | None:
        return part / wall * 100 if part is not None and wall else None

    def on_gpu(part: int) -> int | None:
        return part if on_device else None

    unknown = kernels["tensor_core"].null_count() and not used.any()
    return {
        "Wall Clock Time (ns)": wall,
        "Tensor Core Kernel Utilization %": (
            None if unknown or not on_device
            else on_tensor / total * 100 if total else 0.0
        ),
        "GPU Utilization %": _utilization(model) if on_device else None,
        "Tensor Core Kernel Duration %": None if unknown else share(on_gpu(spans.tensor_core)),
        "Non-Tensor Core Kernel Duration %": (
            None if unknown else share(on_gpu(spans.other_kernels))
        ),
        "Memory Duration %": share(on_gpu(spans.memory)),
        "Dataloader Duration %": share(spans.dataloader),
        "IO Duration %": share(spans.io),
        "CPU Duration %": share(spans.cpu),
        "Other Duration %": share(spans.other),
    }  # fmt: skip


def _has_device(model: Model) -> bool:
    trace = model.source.trace
    return trace.has("kernels") or trace.has("memops")


def _inside(frame: pl.DataFrame) -> Spans:
    timed = frame.drop_nulls(["start", "end"])
    return timed["start"].to_numpy(), timed["end"].to_numpy()


def _loading(model: Model, types: pl.Series) -> Spans:
    """Return when the program waited for input data: the loader ops, and the waits that adapters record."""
    attribution = model.source.ops.attribution
    waits = np.flatnonzero(attribution.meaning.role == ROLE["loader"])
    ranges = attribution.trace["ranges"].select("start", "end")[waits]
    loads = model.times.filter(types.is_in(list(DATALOADERS))).select("start", "end")
    return _inside(pl.concat([ranges, loads]))


def devices(model: Model) -> pl.DataFrame:
    """One row per device: its number and name, its utilization (percent), and its times (ns)."""
    trace = model.source.trace
    seen = pl.concat(
        [
            trace["devices"].select("process", "device"),
            model.kernels.select("process", "device"),
            model.memops.select("process", "device"),
        ]
    ).unique(maintain_order=True)
    named = trace["devices"].select("process", "device", "name", "uuid")
    seen = seen.join(named, on=["process", "device"], how="left", nulls_equal=True)
    # ranks that share a machine see one GPU under different numbers
    key = pl.coalesce("uuid", pl.format("{}:{}", "process", "device"))
    rows = []
    for (_,), group in seen.with_columns(key.alias("key")).group_by("key", maintain_order=True):
        ours = group.select("process", "device")
        ran, moved = (
            frame.join(ours, on=["process", "device"], how="semi", nulls_equal=True)
            for frame in (model.kernels, model.memops)
        )
        busy = busy_share(model.within, clipped_union(ran, model))
        rows.append(
            {
                "Device ID": group["device"][0],
                "GPU Name": group["name"][0],
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
    lengths = kept["end"] - kept["begin"]
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
    """Four rows: all ops, those that use Tensor Cores, those that could and do not, and the others."""
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
    rows = {
        "All ops": pl.lit(True),
        "Ops using TC": uses,
        "Ops eligible for TC but not using": could & ~uses,
        "All other ops": ~could & ~uses,
    }
    return pl.concat(
        [
            each.filter(chosen).select(
                pl.lit(name).alias(""),
                _sum_or_zero("gpu", _has_device(model)).alias("GPU Time (ns)"),
                _sum_or_zero("cpu", True).alias("CPU Time (ns)"),
                pl.len().cast(pl.Int64).alias("# Ops"),
            )
            for name, chosen in rows.items()
        ]
    )


def _sum_or_zero(name: str, has_values: bool) -> pl.Expr:
    return (pl.col(name).sum() if has_values else pl.lit(None)).cast(pl.Int64)


def all_kernels(model: Model) -> pl.DataFrame:
    """Four rows: all kernels, those on Tensor Cores, copies and sets, and the others; by distinct name."""
    kernels, memops = model.kernels, model.memops
    used = kernels["tensor_core"].fill_null(False)
    has_gpu = _has_device(model)
    has_calls = model.source.trace.has("calls")

    def row(name: str, *parts: tuple[pl.DataFrame, str]) -> dict[str, Any]:
        return {
            "": name,
            "GPU Time (ns)": sum(table["duration"].sum() for table, _ in parts)
            if has_gpu
            else None,
            "CPU Time (ns)": (
                sum(table["api_time"].sum() for table, _ in parts)
                if has_gpu and has_calls
                else None
            ),
            "# Kernels": sum(table[key].n_unique() for table, key in parts) if has_gpu else None,
        }

    return pl.DataFrame(
        [
            row("All kernels", (kernels, "short"), (memops, "name")),
            row("Kernels using TC", (kernels.filter(used), "short")),
            row("Memory", (memops, "name")),
            row("All other kernels", (kernels.filter(~used), "short")),
        ],
        schema={
            "": pl.String, "GPU Time (ns)": pl.Int64, "CPU Time (ns)": pl.Int64,
            "# Kernels": pl.Int64,
        },
    )  # fmt: skip
