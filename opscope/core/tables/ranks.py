"""Read ranks, process groups and device meshes from the specs in which processes describe themselves."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import polars as pl

from opscope.core.group_specs import DIMENSION, GROUP, GROUPS
from opscope.core.process_specs import FORK, GRAPH, KEY
from opscope.core.rangetext import RangeTextError, parse, parse_spec
from opscope.core.tables.trace import Trace

_MESH: Final = re.compile(r"mesh ([0-9]{1,9})\Z")
FRAMEWORKS: Final = ("torch", "tensorflow", "jax", "mindspore")
#: Fields in which a process describes itself → their types.
_TYPES: Final = {
    "host": str, "pid": int, "parent": int, "rank": int, "world_size": int, "name": str
}  # fmt: skip
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
    """Return one row per process and process group that it is a member of (GROUPS_SCHEMA).

    ``rank``: its rank within the group. ``ranks``: the members, as ``format_ranks`` writes them.
    """
    return _described(trace)[0]


def meshes(trace: Trace) -> pl.DataFrame:
    """Return one row per process and dimension of a device mesh (MESHES_SCHEMA).

    ``coordinate``: the process's position along it. ``group``: the process group of the processes that
    differ only in this coordinate. Both are null if the process is not in the mesh.
    """
    return _described(trace)[1]


def _described(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame]:
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
    """Return (process, text) of specs that may describe groups or meshes; a trace has few."""
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


def _fits(value: object) -> bool:
    """Return whether a column can store the value (32 bits)."""
    return type(value) is not int or abs(value) < 1 << 31


def _row(params: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    wanted = {pl.Int64: int, pl.String: str}
    return {
        name: params[name]
        for name, kind in schema.items()
        if type(params.get(name)) is wanted.get(kind)
    }


def with_facts(trace: Trace) -> Trace:
    """Return ``trace`` with null fields of ``processes`` filled from the specs that each process wrote.

    An NVTX tool does not know ranks, world sizes, frameworks and parents, and may not know the host's name.
    """
    facts_of = _facts(trace)
    if not facts_of:
        return trace
    processes = trace["processes"]
    numbers = dict(processes.select("pid", "process").iter_rows())
    _note_untraced(trace, facts_of, numbers)
    rows = []
    for row in processes.iter_rows(named=True):
        facts = facts_of.get(row["process"], {})
        if facts.get("pid", row["pid"]) != row["pid"]:
            facts = {}  # such specs describe the process that it was forked from
        versions_there = dict(json.loads(row["versions"]) if row["versions"] else {})
        versions = {**facts.get("versions", {}), **versions_there}
        frameworks = [name for name in FRAMEWORKS if name in versions]
        wanted = {
            "host": facts.get("host"),
            "rank": facts.get("rank"),
            "world_size": facts.get("world_size"),
            "parent": numbers.get(facts.get("parent", -1)),
            "name": facts.get("name"),
            "framework": ",".join(frameworks) or None,
        }
        row |= {name: value for name, value in wanted.items() if row[name] is None}
        rows.append(row | {"versions": json.dumps(versions) if versions else None})
    return trace.replace(processes=pl.DataFrame(rows, schema=processes.schema))


def _note_untraced(
    trace: Trace, facts_of: dict[int, dict[str, Any]], numbers: dict[int, int]
) -> None:
    """Add a note on forked processes that were not recorded."""
    ranges = trace["ranges"]
    forks = ranges.filter(
        (pl.col("category") == "spec")
        & pl.col("text").cast(pl.String).str.starts_with(f"{GRAPH}/{FORK} = ")
    )["process"].value_counts()
    missing = 0
    for process, times in forks.iter_rows():
        there = {
            child
            for child, facts in facts_of.items()
            if numbers.get(facts.get("parent", -1)) == process != child
        }
        missing += max(0, times - len(there))
    if missing:
        message = (
            "forked processes are missing from the trace: Nsight Systems traces them (a data loader's "
            "workers, for example) with --trace-fork-before-exec=true"
        )
        trace.note("warning", message, missing)


def _facts(trace: Trace) -> dict[int, dict[str, Any]]:
    """Return the latest facts that each process wrote, without values of an unexpected type."""
    ranges = trace["ranges"]
    if not (ranges["category"] == "spec").any():
        return {}
    texts = (
        ranges.filter(pl.col("category") == "spec")
        .select("process", pl.col("text").cast(pl.String))
        .unique(maintain_order=True)
        .filter(pl.col("text").str.starts_with(f"{GRAPH}/{KEY} = "))
    )
    facts_of_processes: dict[int, dict[str, Any]] = {}
    for process, text in texts.iter_rows():
        try:
            call = parse(parse_spec(text)[2])
        except RangeTextError:
            continue
        params = dict(call.params)
        facts: dict[str, Any] = {
            name: params[name]
            for name, kind in _TYPES.items()
            if type(params.get(name)) is kind and _fits(params[name])
        }
        named = params.get("versions")
        words = named if isinstance(named, tuple) else ()
        pairs = [word.partition(" ") for word in words if isinstance(word, str)]
        facts["versions"] = {name: version for name, _, version in pairs if version}
        facts_of_processes[process] = facts
    return facts_of_processes


def with_ranks(trace: Trace) -> Trace:
    """Return ``trace`` with null ``processes.rank`` and ``world_size`` filled from its process groups.

    (A launcher sets both in the environment; ``multiprocessing`` does not.)
    """
    processes = trace["processes"]
    if not (processes["rank"].is_null() | processes["world_size"].is_null()).any():
        return trace
    members = groups(trace).drop_nulls(["global_rank", "world_size"])
    if members.is_empty():
        return trace
    members = members.group_by("process").agg(pl.col("global_rank", "world_size").max())
    filled = processes.join(
        members, on="process", how="left", maintain_order="left", suffix="_of_groups"
    )
    return trace.replace(
        processes=filled.with_columns(
            pl.col("rank").fill_null(pl.col("global_rank").cast(pl.Int32, strict=False)),
            pl.col("world_size").fill_null(
                pl.col("world_size_of_groups").cast(pl.Int32, strict=False)
            ),
        ).select(processes.columns)
    )
