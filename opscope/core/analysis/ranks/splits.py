"""Read what a record of an all-to-all says of its splits: how many rows go to each rank of the group."""

from __future__ import annotations

import json
from typing import Any, Final

#: A split with more ranks than this, or more rows, is no list of ranks.
MOST_RANKS: Final = 1 << 16
_MOST_ROWS: Final = 1 << 44


def record(text: str) -> dict[str, Any]:
    """Return the record that ``text`` (JSON) holds; an empty one if it holds none."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def split(told: object) -> list[int] | None:
    """Return the numbers of a split; None if it is cut short or of another form."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            return None
    if not isinstance(told, list) or len(told) > MOST_RANKS:
        return None
    return told if all(type(one) is int and 0 <= one < _MOST_ROWS for one in told) else None
