"""Ranks: the process groups and device meshes of each process, from the specs that tell of them."""

from __future__ import annotations

import re
from typing import Any, Final

import polars as pl

from opscope.core.groups import DIMENSION, GROUP, GROUPS
from opscope.core.rangetext import RangeTextError, parse, parse_spec
from opscope.core.trace import Trace

_MESH: Final = re.compile(r"mesh ([0-9]{1,9})\Z")
GROUPS_SCHEMA: Final = {
    "process": pl.Int32,
    "group": pl.String,
    "rank": pl.Int64,
    "size": pl.Int64,
    "ranks": pl.String,
    "global_rank": pl.Int64,
    "world_size": pl.Int64,
    "backend": pl.String,
    "description": pl.String,
}
MESHES_SCHEMA: Final = {
    "process": pl.Int32,
    "mesh": pl.Int64,
    "index": pl.Int64,
    "dimension": pl.String,
    "size": pl.Int64,
    "coordinate": pl.Int64,
    "group": pl.String,
    "device": pl.String,
}


def groups(trace: Trace) -> pl.DataFrame:
    """One row per process and process group that it is a member of (GROUPS_SCHEMA).

    ``rank`` is that within the group, ``ranks`` the members as ``format_ranks`` writes them.
    """
    return _told(trace)[0]


def meshes(trace: Trace) -> pl.DataFrame:
    """One row per process and dimension of a device mesh (MESHES_SCHEMA).

    ``coordinate``: where along it the process lies; ``group``: the process group of those that
    differ in this coordinate alone. Both null where the process is not in the mesh.
    """
    return _told(trace)[1]


def _told(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame]:
    ranges = trace["ranges"]
    of_groups: dict[tuple[int, str], dict[str, Any]] = {}
    of_meshes: dict[tuple[int, str, str], dict[str, Any]] = {}
    for process, text in _specs(ranges).iter_rows():
        try:
            graph, key, call_text = parse_spec(text)
            call = parse(call_text)
        except RangeTextError:
            continue
        params = dict(call.params)
        mesh = _MESH.match(graph)
        if graph == GROUPS and call.name == GROUP:
            row = _row(params, GROUPS_SCHEMA) | {"process": process, "group": key}
            of_groups[process, key] = row
        elif mesh is not None and call.name == DIMENSION:
            row = _row(params, MESHES_SCHEMA) | {"process": process, "dimension": key}
            of_meshes[process, graph, key] = row | {"mesh": int(mesh.group(1))}
    return (
        pl.DataFrame(list(of_groups.values()), schema=GROUPS_SCHEMA),
        pl.DataFrame(list(of_meshes.values()), schema=MESHES_SCHEMA),
    )


def _specs(ranges: pl.DataFrame) -> pl.DataFrame:
    """(process, text) of the specs that may be ours; few, of the whole trace."""
    if not (ranges["category"] == "spec").any():
        return pl.DataFrame(schema={"process": pl.Int32, "text": pl.String})
    specs = ranges.filter(
        (pl.col("category") == "spec") & (pl.col("domain").cast(pl.String) == "opscope.torch")
    )
    return (
        specs.select("process", pl.col("text").cast(pl.String))
        .unique(maintain_order=True)
        .filter(pl.col("text").str.contains(r'\A(process_group|"mesh [0-9]+")/'))
    )


def _row(params: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    wanted = {pl.Int64: int, pl.String: str}
    return {
        name: params[name]
        for name, kind in schema.items()
        if type(params.get(name)) is wanted.get(kind)
    }


def with_ranks(trace: Trace) -> Trace:
    """``trace`` with ``processes.rank`` and ``world_size`` from its groups, where they are null.

    A launcher tells them in the environment, ``multiprocessing`` does not.
    """
    processes = trace["processes"]
    if not (processes["rank"].is_null() | processes["world_size"].is_null()).any():
        return trace
    told = groups(trace).drop_nulls(["global_rank", "world_size"])
    if told.is_empty():
        return trace
    told = told.group_by("process").agg(pl.col("global_rank", "world_size").max())
    filled = processes.join(told, on="process", how="left", maintain_order="left", suffix="_told")
    return trace.replace(
        processes=filled.with_columns(
            pl.col("rank").fill_null(pl.col("global_rank").cast(pl.Int32, strict=False)),
            pl.col("world_size").fill_null(pl.col("world_size_told").cast(pl.Int32, strict=False)),
        ).select(processes.columns)
    )
