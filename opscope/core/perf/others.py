"""Cost models of other packages: their modules in the entry-point group ``opscope.costs`` register them.

[project.entry-points."opscope.costs"]
mylib = "opscope_mylib.costs"
"""

from __future__ import annotations

import logging
import threading
from importlib.metadata import EntryPoint
from typing import Final

from opscope.core.registered import entry_points

GROUP: Final = "opscope.costs"
_log = logging.getLogger(__name__)


_lock = threading.RLock()
_begun = _done = False


def load() -> None:
    """Import the modules, once, before an op is first looked up; ops looked up meanwhile have only opscope's
    models.

    A module that fails is left out with a warning: its ops then have no cost.
    """
    global _begun, _done
    if _done:
        return
    with _lock:
        if not _begun:
            _begun = True
            _import_all()
            _done = True


def _import_all() -> None:
    for point in sorted(entry_points(group=GROUP), key=lambda point_: point_.name):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - another package's fault must not block the analysis
            _log.warning("opscope: the costs of %s are left out: %s", _of(point), error)


def _of(point: EntryPoint) -> str:
    package = "another package" if point.dist is None else point.dist.name
    return f"{package} ({point.value})"
