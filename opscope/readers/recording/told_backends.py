"""Find which backends recorded the processes of a recording, and why, from each process's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opscope.core.tables.trace import Trace

#: The most texts of one process that are kept, and their length: a recording may come from a stranger.
_MOST: Final = 32
_LONG: Final = 500


def backend_fact(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fact ``backend`` of a part, cut to these limits. Raises KeyError, TypeError, ValueError."""
    better = [
        {"backend": _text(name), "why": _text(why)} for name, why in line.get("better", ())[:_MOST]
    ]
    return {
        "backend": _text(line["backend"]),
        "reason": _text(line.get("reason", "")),
        "better": better,
    }


def backends_of(traces: list[Trace]) -> list[dict[str, Any]]:
    """Remove ``origin["backend"]`` from the traces of all parts; return the distinct reports. If a process
    has several parts, the last one counts: an earlier part has only ranges, because no profiler had begun.
    ``processes`` counts the processes with the same report; most frequent first."""
    last: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
    for trace in traces:
        backend = trace.origin.pop("backend", None)
        began = trace.origin.pop("began", None) or 0
        who = trace["processes"].select("host", "pid", "start_time").row(0)
        if backend is not None and (who not in last or last[who][0] <= began):
            last[who] = (began, backend)
    counts: dict[str, dict[str, Any]] = {}
    for _, backend in last.values():
        backend_counts = counts.setdefault(repr(backend), {**backend, "processes": 0})
        backend_counts["processes"] += 1
    return sorted(
        counts.values(), key=lambda backend_row: (-backend_row["processes"], backend_row["backend"])
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r:.40}")
    return value[:_LONG]
