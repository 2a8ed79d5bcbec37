"""Read the splits of an all-to-all from its record: how many rows go to each rank of the group."""

from __future__ import annotations

import json
from typing import Final

#: The most ranks in a split, and the most rows; larger values are invalid.
MOST_RANKS: Final = 1 << 16
_MOST_ROWS: Final = 1 << 44


def split(value: object) -> list[int] | None:
    """Return the numbers of a split; None if it is cut short or of another form."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, list) or len(value) > MOST_RANKS:
        return None
    return value if all(type(rows) is int and 0 <= rows < _MOST_ROWS for rows in value) else None
