"""Cost models of other packages: modules at the entry-point group ``opscope.costs``, which register theirs.

[project.entry-points."opscope.costs"]
mylib = "opscope_mylib.costs"
"""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint, entry_points
from typing import Final

GROUP: Final = "opscope.costs"
_log = logging.getLogger(__name__)


def load() -> None:
    """Import the modules. One that fails is left out with a warning: its ops then have no cost."""
    for point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - another package's fault must not block the analysis
            _log.warning("opscope: the costs of %s are left out: %s", _of(point), error)


def _of(point: EntryPoint) -> str:
    package = "another package" if point.dist is None else point.dist.name
    return f"{package} ({point.value})"
