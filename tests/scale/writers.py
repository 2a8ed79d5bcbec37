"""What workers are given in place of ``write_partial``: they note what they read, and die where a test says so.

Workers import this by name. Notes lie beside the folder of partials.
"""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

from opscope.scale.partial import write_partial


def counted(source: str, parts: str, **options) -> str:
    """Note that the source was read, and read it."""
    notes = Path(parts).with_name("reads")
    notes.mkdir(exist_ok=True)
    (notes / uuid.uuid4().hex).write_text(Path(source).name)
    return write_partial(source, parts, **options)


def dying(source: str, parts: str, **options) -> str:
    """End the worker as many times as the file ``SOURCE.deaths`` says, then read."""
    deaths = Path(f"{source}.deaths")
    left = int(deaths.read_text()) if deaths.exists() else 0
    if left:
        deaths.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return counted(source, parts, **options)


def killing(source: str, parts: str, **options) -> str:
    """Kill the process whose id is in the file ``SOURCE.kill``, once, then read."""
    planned = Path(f"{source}.kill")
    if planned.exists():
        victim = int(planned.read_text())
        planned.unlink()
        os.kill(victim, signal.SIGKILL)
    return counted(source, parts, **options)


def threads(source: str, parts: str, **options) -> str:
    """Note how many threads Polars has in this worker."""
    import polars

    Path(parts).with_name("threads").write_text(
        f"{polars.thread_pool_size()} {os.environ['OMP_NUM_THREADS']}"
    )
    return write_partial(source, parts, **options)


def raising(source: str, parts: str, **options) -> str:
    """Fail as no reader does."""
    raise ZeroDivisionError("planted")


def refused_by_the_disk(source: str, parts: str, **options) -> str:
    """Fail as a full disk does."""
    from opscope.readers.errors import BadInput

    raise BadInput(parts, "cannot be written: No space left on device")


def reads(parts: Path) -> list[str]:
    """The names of the sources that were read, sorted."""
    notes = parts.with_name("reads")
    return sorted(one.read_text() for one in notes.iterdir()) if notes.exists() else []
