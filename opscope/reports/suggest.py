"""What was probably meant by a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """``no KIND named NAME``, the name that is like it, and all that there are."""
    known = list(names)
    close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.75)
    listed = f"there are {', '.join(known)}"
    if close:
        return f"no {kind} named {name!r}; did you mean {close[0]!r}? ({listed})"
    return f"no {kind} named {name!r}; {listed}"
