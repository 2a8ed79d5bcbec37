"""Keep the exit status of the recorded processes that this one starts, such as the ranks of a launcher.

A process cannot tell its own exit status, and ``opscope run`` sees only that of its own child. Python's
``subprocess`` and ``multiprocessing`` learn it where they wait; the status of a process that records into the
same folder is then appended to ``EXITS``.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from opscope.core.capture import after_import, process
from opscope.core.recording_format import EXITS

_log = logging.getLogger(__name__)


#: Per module, the method of its ``Popen`` that waits for a child: private, and missing on Windows.
_WAITS: Final = {"subprocess": "_handle_exitstatus", "multiprocessing.popen_fork": "poll"}


def keep(folder: str) -> None:
    """Keep exit statuses once the program imports a framework: launchers of ranks do."""
    after_import.as_it_begins(functools.partial(_wait, folder))


def _wait(folder: str) -> None:
    # never import these first: PyTorch's compile caches have the order of imported modules in their keys
    for name, method in _WAITS.items():
        if name in sys.modules:
            _install(folder, method, sys.modules[name])
        else:
            after_import.call(functools.partial(_install, folder, method), name)


def _install(folder: str, method: str, module: Any) -> None:
    try:
        waits = getattr(module.Popen, method, None)
        if waits is not None:
            setattr(module.Popen, method, _noting(waits, folder))
    except Exception:  # noqa: BLE001 - our fault must never reach the user's program
        _log.debug("opscope: exit statuses are not kept", exc_info=True)


def _noting(waits: Callable[..., Any], folder: str) -> Callable[..., Any]:
    @functools.wraps(waits)
    def noting(child: Any, *args: Any, **kwargs: Any) -> Any:
        before = child.returncode
        result = waits(child, *args, **kwargs)
        if before is None and child.returncode is not None:
            note(folder, child.pid, child.returncode)
        return result

    return noting


def note(folder: str, pid: int, status: int) -> None:
    """Append the exit status of a process that recorded into the folder; a signal as a shell reports it."""
    try:
        if not any(f"-{pid}-" in name for name in os.listdir(folder)):
            return
        status = 128 - status if status < 0 else status
        line = {"pid": pid, "boot": process.boot(), "seen": perf_counter_ns(), "status": status}
        file = os.open(os.path.join(folder, EXITS), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{json.dumps(line)}\n".encode())
        finally:
            os.close(file)
    except Exception:  # noqa: BLE001 - a full disk, a folder that is gone, or the interpreter's end
        _log.debug("opscope: an exit status was not kept", exc_info=True)
