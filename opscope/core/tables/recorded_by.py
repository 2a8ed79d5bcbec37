"""Which backends recorded a trace, and why, in words: what ``opscope run`` and the summary say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def recorded_by(origin: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the backend of most processes and why it is that one; None if the trace does not say.

    The reason also names the backends of other processes.
    """
    told = [one for one in origin.get("backends") or () if isinstance(one, Mapping)]
    if not told:
        return None
    first, others = told[0], told[1:]
    # processes of one backend may have several reasons
    counts: dict[str, int] = {}
    for one in others:
        if one.get("backend") != first.get("backend"):
            name = str(one.get("backend"))
            counts[name] = counts.get(name, 0) + int(one.get("processes") or 0)
    more = [f"{name} in {n} process{'es' if n > 1 else ''}" for name, n in counts.items()]
    return str(first.get("backend")), "; ".join((str(first.get("reason") or ""), *more))
