"""The error message for an unknown name, with the most similar known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """Return ``no KIND named NAME``, with the most similar name, if any, and all known names."""
    all_names = list(names)
    close = difflib.get_close_matches(name.lower().replace("-", "_"), all_names, n=1, cutoff=0.75)
    listed = f"choose from: {', '.join(all_names)}"
    if close:
        return f"no {kind} named {name!r}; did you mean {close[0]!r}? ({listed})"
    return f"no {kind} named {name!r}; {listed}"
