"""The words of the frames of the critical path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "new_wall_time": "time that it would take with the change",
        "saving": "wall_time - new_wall_time; negative if it would take longer",
        "removed_time": (
            "durations that the change takes away, on the critical path or not, added up: no saving is"
            " larger; null for a step"
        ),
    },
    "fraction": {"saving_share": "saving / wall_time"},
    "count": {"pieces": "pieces of the critical path"},
}
