"""Profiles made of rows: ops with the kernels that they launched, steps, compilations."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import polars as pl

from opscope.core.tables.trace import Trace
from opscope.profile import Profile

POINT = "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>(int)"
#: Host time (ns) from one op to the next.
APART = 10_000


def ran(text: str, start: int, end: int, name: str = POINT, **more: Any) -> dict[str, Any]:
    """An op and its kernel, which ran from ``start`` to ``end`` (ns); ``way``, ``step``, ``stream``, ``call``."""
    return {"text": text, "start": start, "end": end, "name": name, **more}


def processes(framework: str | None) -> pl.DataFrame:
    row = {"process": 0, "pid": 1, "framework": framework}
    return pl.DataFrame([row], schema_overrides={"framework": pl.String})


def spans(rows: list[dict[str, Any]], category: str = "phase") -> list[dict[str, Any]]:
    """Ranges of a category: ``text``, ``start``, ``end`` (ns)."""
    place = {"process": 0, "thread": 1, "domain": "opscope.torch", "kind": "pushpop"}
    return [{**place, "category": category, **row} for row in rows]


def on_gpu(
    rows: list[dict[str, Any]], framework: str | None = "torch", others: list[dict[str, Any]] = ()
) -> Profile:
    """The profile of ops in this order on one thread, each with one kernel; a text of None: no op.

    ``call``: the start and the end (ns) of the launch.
    """
    ranges, calls, kernels = list(others), [], []
    steps: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        at = APART * number
        begin, end = row.get("call") or (at + 1_000, at + 3_000)
        if row["text"] is not None:
            ranges += spans(
                [{"text": row["text"], "start": min(at, begin), "end": max(at + 5_000, end)}],
                row.get("way", "forward"),
            )
        if "step" in row:
            steps.setdefault(row["step"], []).extend((min(at, begin), max(at + 6_000, end)))
        calls.append(
            {
                "process": 0,
                "thread": 1,
                "start": begin,
                "end": end,
                "name": "cudaLaunchKernel",
                "correlation": number,
            }
        )
        kernels.append(
            {"process": 0, "device": 0, "context": 1, "stream": row.get("stream", 7), "start": row["start"],
             "end": row["end"], "name": row["name"], "correlation": number}
        )  # fmt: skip
    for step, times in steps.items():
        ranges += spans([{"text": f"step {step}", "start": min(times), "end": max(times)}], "step")
    tables = {
        "ranges": pl.DataFrame(ranges) if ranges else None,
        "calls": pl.DataFrame(calls),
        "kernels": pl.DataFrame(kernels),
        "processes": processes(framework),
    }
    return Profile(
        Trace.of({name: table for name, table in tables.items() if table is not None}, {})
    )


def on_cpu(
    rows: list[dict[str, Any]],
    framework: str | None = "torch",
    origin: dict[str, Any] | None = None,
) -> Profile:
    """The profile of ranges alone: ``text``, ``start``, ``end`` (ns), ``category``."""
    ranges = [row for one in rows for row in spans([one], one.get("category", "forward"))]
    tables = {"ranges": pl.DataFrame(ranges), "processes": processes(framework)}
    return Profile(Trace.of(tables, origin or {}))


def find(name: str, profile: Profile, **thresholds: float) -> Any:
    """What a detector answers."""
    detector = import_module(f"opscope.core.advice.detectors.{name}").DETECTOR
    return detector.find(profile, **thresholds)
