"""The backends that recorded a trace, and why they were chosen, in words for ``opscope run`` and the
summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def recorded_by(origin: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the backend of most processes and why it was chosen; None if the trace does not say.

    The reason also names the backends of other processes.
    """
    backends = [backend for backend in origin.get("backends") or () if isinstance(backend, Mapping)]
    if not backends:
        return None
    first, others = backends[0], backends[1:]
    # processes of one backend may have several reasons
    counts: dict[str, int] = {}
    for other in others:
        if other.get("backend") != first.get("backend"):
            name = str(other.get("backend"))
            counts[name] = counts.get(name, 0) + int(other.get("processes") or 0)
    more = [f"{name} in {n} process{'es' if n > 1 else ''}" for name, n in counts.items()]
    return str(first.get("backend")), "; ".join((str(first.get("reason") or ""), *more))
