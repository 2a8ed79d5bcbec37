"""Make tables of a tree of Proton's totals: each launch becomes a kernel, inside the program's scopes. The
totals say how often and how long a kernel ran, not when. So launches are placed end to end in the order of
the tree, which keeps sums and numbers right."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.tables.columns import spread
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.sound import sound_trace

from .values import processes, whole

MADE_UP: Final = (
    "this file has totals and no times: launches are shown one after another from 0, so that sums and "
    "numbers are right; when they began, and what ran side by side, is not known"
)
_AGAIN: Final = (
    "frames of the tree that equal another of their scope, with all inside them: counted once"
)
#: The most nodes of a tree, nested nodes, and executions that are placed; beyond that, one row represents all
#: executions of a kernel.
_MOST_NODES, _DEEPEST, _MOST = 1 << 20, 256, 1 << 20
_TIME, _COUNT, _DEVICE, _TYPE = "time (ns)", "count", "device_id", "device_type"
_NAME: Final = 8192
#: The name of the tree's own root, and of nodes that Proton itself adds.
_ROOT: Final = "ROOT"


class _Laid:
    """The rows of kernels and of scopes, placed from 0 on."""

    def __init__(self, lays_each: bool) -> None:
        self.lays_each = lays_each
        self.names: dict[str, int] = {}
        self.node = {name: array("q") for name in ("name", "device", "count", "time", "start")}
        self.scope = {name: array("q") for name in ("name", "start", "end", "depth")}
        self.clock = 0
        self.odd = 0

    def number(self, name: str) -> int:
        """The number of a name."""
        return self.names.setdefault(name, len(self.names))

    def kernel(self, name: str, metrics: Mapping[str, Any]) -> None:
        """Place the executions of a node, if it has a kernel's total."""
        if _TIME not in metrics:
            return
        time, count = whole(metrics.get(_TIME)), whole(metrics.get(_COUNT))
        if time is None or not count:
            self.odd += bool(metrics.get(_TIME))
            return
        device = whole(metrics.get(_DEVICE), 1 << 20)
        row = (self.number(name), -1 if device is None else device, count, time, self.clock)
        for column, value in zip(self.node.values(), row, strict=True):
            column.append(value)
        # a launch begins 1 ns before its kernel
        self.clock += time + (count if self.lays_each else 1)


def trace_of(document: list[Any], path: Path) -> Trace:
    """Return the trace of a tree and its devices. Raises BadInput."""
    others = [item for item in document[1:] if isinstance(item, dict)]
    trees = [document[0], *(item for item in others if "children" in item)]
    root = trees[0] if len(trees) == 1 else {"children": trees, "frame": trees[0].get("frame")}
    total, again = _launches(root, path)
    laid = _Laid(total <= _MOST)
    _walk(root, laid)
    if not len(laid.node["name"]):
        raise BadInput(
            path,
            "a tree of Triton's Proton without times of kernels: instruction samples or cycles, which are "
            "not read (proton.start with its default backend records times)",
        )
    devices: dict[str, Any] = next((item for item in others if "children" not in item), {})
    tables = {**processes(), **_tables(laid), "devices": _devices(devices, laid)}
    origin = {
        "format": "proton",
        "tool": "Triton's Proton",
        "version": None,
        "paths": [str(path)],
        "times": "of kernels as Proton has their sums, laid end to end in the order of its tree",
        "gpu": True,
    }
    trace = sound_trace(tables, origin)
    trace.note("warning", MADE_UP, total)
    if not laid.lays_each:
        message = (
            f"more than {_MOST:,} launches: one row stands for all launches of a kernel in a scope"
        )
        trace.note("warning", message, total)
    if again:
        trace.note("warning", _AGAIN, again)
    if laid.odd:
        trace.note("warning", "totals that cannot be read, left out", laid.odd)
    return trace


def _nodes(root: Any) -> Any:
    """Yield (depth, node, whether it is left), each node before and after its children."""
    pending: list[tuple[int, Any, bool]] = [(0, root, False)]
    while pending:
        depth, node, is_left = pending.pop()
        yield depth, node, is_left
        children = node.get("children")
        if is_left or not isinstance(children, list):
            continue
        pending.append((depth, node, True))
        if depth < _DEEPEST:
            pending += [
                (depth + 1, child, False) for child in reversed(children) if isinstance(child, dict)
            ]


def _once(children: list[Any]) -> list[Any]:
    """Return the children without those that equal another: Proton has one node of a frame in a scope."""
    firsts: dict[str, Any] = {}
    kept = []
    for child in children:
        # only siblings that look alike themselves are compared with all that is in them
        own = isinstance(child, dict) and repr((child.get("frame"), child.get("metrics")))
        if not own or own not in firsts or firsts[own] != child:
            kept.append(child)
            firsts.setdefault(str(own), child)
    return kept


def _launches(root: Any, path: Path) -> tuple[int, int]:
    """Return how many launches a tree has, and how many nodes were taken out of it because they equal one
    beside them. Raises BadInput for a tree that is too large."""
    total = nodes = again = 0
    for _, node, is_left in _nodes(root):
        if is_left:
            continue
        nodes += 1
        children = node.get("children")
        if isinstance(children, list) and len(children) > 1:
            node["children"] = _once(children)
            again += len(children) - len(node["children"])
        if nodes > _MOST_NODES:
            raise BadInput(path, f"a tree of more than {_MOST_NODES:,} frames")
        metrics = node.get("metrics")
        if isinstance(metrics, dict) and _TIME in metrics:
            total += whole(metrics.get(_COUNT)) or 0
    return total, again


def _walk(root: Any, laid: _Laid) -> None:
    opened: list[tuple[int, int]] = []
    for depth, node, is_left in _nodes(root):
        if is_left:
            number, start = opened.pop()
            if laid.clock > start and number >= 0:
                row = (number, start, laid.clock, depth)
                for column, value in zip(laid.scope.values(), row, strict=True):
                    column.append(value)
            continue
        frame, metrics, children = (node.get(key) for key in ("frame", "metrics", "children"))
        given = frame.get("name") if isinstance(frame, dict) else None
        name = given[:_NAME] if isinstance(given, str) else "?"
        if isinstance(metrics, dict):
            laid.kernel(name, metrics)
        if isinstance(children, list):
            is_scope = bool(children) and not (depth < 2 and name in ("", _ROOT))
            opened.append((laid.number(name) if is_scope else -1, laid.clock))


def _tables(laid: _Laid) -> dict[str, pl.DataFrame]:
    names = list(laid.names)
    node = {name: np.array(column, np.int64) for name, column in laid.node.items()}
    each = node["count"] if laid.lays_each else np.ones(len(node["count"]), np.int64)
    row = np.repeat(np.arange(len(each)), each)
    index = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
    # the first ones are one ns longer, so that the sum is exact
    lasted = node["time"][row] // each[row] + (index < node["time"][row] % each[row])
    before = np.cumsum(lasted + 1) - (lasted + 1)
    base = before[np.cumsum(each) - each]
    start = node["start"][row] + before - base[row]
    process = pl.lit(0, pl.Int32).alias("process")
    number = np.arange(1, len(row) + 1)
    kernels = pl.DataFrame(
        {
            "device": pl.Series(node["device"][row]).replace(-1, None).cast(pl.Int32),
            "start": start + 1,
            "end": start + 1 + lasted,
            "name": spread("name", names, node["name"][row].astype(np.int32)),
            "correlation": number,
        }
    )
    calls = pl.DataFrame(
        {
            "thread": np.zeros(len(row), np.int64),
            "start": start,
            "end": start + 1,
            "correlation": number,
        }
    )
    return {
        "kernels": kernels.with_columns(process),
        "calls": calls.with_columns(process, pl.lit("launch").alias("name")),
        "ranges": _ranges(laid, names),
    }


def _ranges(laid: _Laid, names: list[str]) -> pl.DataFrame:
    """Return the scopes that the program entered, each around the work inside it."""
    scope = {name: np.array(column, np.int64) for name, column in laid.scope.items()}
    ranges = pl.DataFrame(
        {
            "thread": np.zeros(len(scope["name"]), np.int64),
            "start": scope["start"],
            "end": scope["end"],
            "text": spread("text", names, scope["name"].astype(np.int32)),
            "depth": scope["depth"],
        }
    ).sort("start", "depth", maintain_order=True)
    return ranges.drop("depth").with_columns(
        pl.lit(0, pl.Int32).alias("process"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit("user").alias("domain"),
        pl.lit("pushpop").alias("kind"),
    )


def _devices(devices: Mapping[str, Any], laid: _Laid) -> pl.DataFrame:
    """Return the devices that the file describes; rates are in kHz, the bus in bits."""
    rows = []
    for kind, numbered in devices.items():
        for number, facts in numbered.items() if isinstance(numbered, dict) else ():
            device = whole(number, 1 << 20)
            if device is None or not isinstance(facts, dict):
                continue
            arch = str(facts.get("arch", ""))
            is_nvidia = kind == "CUDA" and arch.isascii() and arch.isdigit() and 2 <= len(arch) <= 3
            rows.append(
                {
                    "process": 0,
                    "device": device,
                    "name": None if is_nvidia or not arch else arch[:256],
                    "cc": f"{arch[:-1]}.{arch[-1]}" if is_nvidia else None,
                    "sm_count": whole(facts.get("num_sms")),
                    "clock_khz": whole(facts.get("clock_rate")),
                    "mem_bandwidth": _bandwidth(facts),
                }
            )
    seen = {row["device"] for row in rows}
    others = sorted({device for device in laid.node["device"] if device >= 0} - seen)
    rows += [{"process": 0, "device": device} for device in others]
    schema = {
        "process": pl.Int32, "device": pl.Int32, "name": pl.String, "cc": pl.String, "sm_count": pl.Int64,
        "clock_khz": pl.Int64, "mem_bandwidth": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row").unique(
        ["process", "device"], keep="first", maintain_order=True
    )


def _bandwidth(facts: Mapping[str, Any]) -> int | None:
    """Return bytes per second: two transfers a cycle, as in Proton itself."""
    rate, width = (
        whole(facts.get("memory_clock_rate"), 1 << 32),
        whole(facts.get("bus_width"), 1 << 20),
    )
    return None if not rate or not width else 2 * rate * 1000 * width // 8
