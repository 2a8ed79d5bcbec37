"""Being told when a module is imported, by who is still there then.

wrapt keeps its hooks until the module is imported, which may be never: each would keep the whole adapter
that it is a method of.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

_lock = threading.Lock()
#: Methods that wait for a module.
_waiting: dict[str, list[weakref.WeakMethod[Callable[[Any], None]]]] = {}


def when_imported(name: str, tell: Callable[[Any], None]) -> None:
    """Call ``tell`` (a method) with module ``name``, now or once it is imported, while its object lives."""
    import wrapt  # slow to import, and not every adapter waits for something

    with _lock:
        known = name in _waiting
        waiting = _waiting.setdefault(name, [])
        waiting[:] = [one for one in waiting if one() is not None]
        waiting.append(weakref.WeakMethod(tell))
    if not known:  # at once, where it is there
        wrapt.register_post_import_hook(functools.partial(_imported, name), name)


def _imported(name: str, module: ModuleType) -> None:
    with _lock:
        waiting = _waiting.pop(name, [])
    for one in waiting:
        tell = one()
        if tell is not None:
            tell(module)
