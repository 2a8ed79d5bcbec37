"""The properties of a run, one per row: the profile's source, frameworks and versions, devices, input,
dtypes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import polars as pl

from opscope.core.literals import json_object
from opscope.core.question.units import counted
from opscope.core.tables.trace import Trace

ABOUT: Final = {"property": pl.String, "value": pl.String}
RUNS: Final = {
    "property": pl.String,
    "value_a": pl.String,
    "value_b": pl.String,
    "same": pl.Boolean,
}
CPU: Final = "none used"
#: Dtypes with a smaller share of the time are not listed.
LEAST: Final = 0.01
_LOADER: Final = {
    "loader": "data loader",
    "workers": "data loader's workers",
    "prefetch": "data loader's prefetch",
    "batch": "batch size",
}


def about(
    trace: Trace,
    unit: str,
    units: pl.DataFrame,
    left_out: int,
    waits: pl.DataFrame,
    on_gpu: bool | None = None,
) -> pl.DataFrame:
    """Return the properties (``ABOUT``) of a run that its profile shows; unknown properties have no row.

    ``waits`` are ``input_waits.waits``. ``on_gpu``: whether a GPU was used, for a job without events.
    ``dtypes`` come from its ops.
    """
    rows = [
        *_source(trace),
        *_frameworks(trace),
        *(_devices(trace) if on_gpu is None else _all_devices(trace, on_gpu)),
        *_ranks(trace),
        *_count(unit, units, left_out),
        *_input(waits),
    ]
    return pl.DataFrame(rows, schema=ABOUT, orient="row")


def runs(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Return the properties of two runs side by side (``RUNS``), those that differ first; null means
    unknown."""
    names = pl.concat([a["property"], b["property"]]).unique(maintain_order=True)
    frame = pl.DataFrame({"property": names}, schema={"property": pl.String})
    for name, run in (("value_a", a), ("value_b", b)):
        frame = frame.join(
            run.rename({"value": name}), on="property", how="left", maintain_order="left"
        )
    same = pl.when(pl.col("value_a").is_not_null() & pl.col("value_b").is_not_null()).then(
        pl.col("value_a") == pl.col("value_b")
    )
    frame = frame.with_columns(same.alias("same"))
    return frame.sort(pl.col("same").fill_null(False), maintain_order=True).select(*RUNS)


def other_devices(a: pl.DataFrame, b: pl.DataFrame) -> str | None:
    """Return in words the devices of two runs if they differ; None if they are equal or unknown."""
    before, other = (_ran_on(run) for run in (a, b))
    if before == other:
        return None
    return f"A ran on {before or 'an unknown device'}, B on {other or 'an unknown device'}"


def _ran_on(run: pl.DataFrame) -> str | None:
    properties = dict(run.select("property", "value").rows())
    if properties.get("GPU") == CPU:
        return f"no GPU ({properties['processor']})" if "processor" in properties else "no GPU"
    return properties.get("GPU")


def _source(trace: Trace) -> Iterator[tuple[str, str]]:
    parts = trace.origin.get("parts") or [trace.origin]
    for name, key in (("format", "format"), ("taken by", "tool")):
        values = {str(part[key]) for part in parts if part.get(key)}
        if values:
            yield name, ", ".join(sorted(values))


def _frameworks(trace: Trace) -> Iterator[tuple[str, str]]:
    processes = trace["processes"]
    frameworks = processes["framework"].drop_nulls().unique().sort().to_list()
    if frameworks:
        yield "framework", ", ".join(frameworks)
    versions: dict[str, set[str]] = {}
    for text in processes["versions"].drop_nulls().unique().to_list():
        for name, version in json_object(text).items():
            versions.setdefault(str(name), set()).add(str(version))
    for name, versions_of_name in sorted(versions.items()):
        names = {"cpu": "processor", "cpu_roofs": "measured limits of the processor"}
        called = names.get(name, f"version of {name}")
        yield called, ", ".join(sorted(versions_of_name))


def _devices(trace: Trace) -> Iterator[tuple[str, str]]:
    if not trace.used_gpu:
        yield "GPU", CPU
    devices = trace["devices"].unique(["uuid", "process", "device"], maintain_order=True)
    used = pl.concat([trace[name].select("process", "device") for name in ("kernels", "memops")])
    if trace.used_gpu and len(used):
        devices = devices.join(
            used.unique(), on=["process", "device"], how="semi", nulls_equal=True
        )
    names = Counter(name for name in devices["name"].drop_nulls().to_list())
    if names:
        text = ", ".join(f"{count} × {name}" for name, count in sorted(names.items()))
        yield ("GPU" if trace.used_gpu else "processor"), text


def _all_devices(trace: Trace, on_gpu: bool) -> Iterator[tuple[str, str]]:
    """Yield the devices of a job, used or not."""
    if not on_gpu:
        yield "GPU", CPU
    devices = trace["devices"].unique(["uuid", "process", "device"], maintain_order=True)
    names = Counter(devices["name"].drop_nulls().to_list())
    if names:
        text = ", ".join(f"{count} × {name}" for name, count in sorted(names.items()))
        yield ("GPU" if on_gpu else "processor"), text


def _ranks(trace: Trace) -> Iterator[tuple[str, str]]:
    sizes = trace["processes"]["world_size"].drop_nulls().unique().sort().to_list()
    if sizes:
        yield "ranks of the job", ", ".join(map(str, sizes))


def _count(unit: str, units: pl.DataFrame, left_out: int) -> Iterator[tuple[str, str]]:
    processes = units["process"].n_unique()
    if processes > 1:
        yield "processes compared", str(processes)
    if unit == "run":
        yield "compared", "whole run"
        return
    how = " (found in what repeats)" if unit == "iteration" else ""
    left = f", {left_out} left out (warm-up or not captured)" if left_out else ""
    yield "compared", f"{counted(int(units['steps'].sum()), unit)}{how}{left}"


def _input(waits: pl.DataFrame) -> Iterator[tuple[str, str]]:
    for column, name in _LOADER.items():
        values = waits[column].drop_nulls().unique().sort().to_list()
        if values:
            yield name, ", ".join(map(str, values))


def dtypes(keys: pl.DataFrame) -> pl.DataFrame:
    """Return the property that lists the dtypes of ops (``keys`` with their times): one row or none."""
    timed = (
        keys.filter(pl.col("dtypes").is_not_null() & ~pl.col("named"))
        .group_by("dtypes")
        .agg(pl.col("time").sum())
        .select(pl.col("dtypes").cast(pl.String).str.split(","), "time")
        .explode("dtypes")
        .group_by("dtypes")
        .agg(pl.col("time").sum())
        .sort("time", "dtypes", descending=[True, False])
    )
    total = int(keys["time"].sum() or 0)
    named = timed.filter(pl.col("time") > LEAST * total)["dtypes"].to_list()
    rows = [("dtypes (1 % of the time or more)", ", ".join(named))] if named else []
    return pl.DataFrame(rows, schema=ABOUT, orient="row")
