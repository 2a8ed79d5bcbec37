"""A capture of the last seconds or steps of a block, for ``opscope.capture(last=…)``."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opscope.core.capture import session
from opscope.core.capture.ring_bounds import Bounds
from opscope.core.capture.ring_recorder import EXCEPTION
from opscope.core.capture.ring_signal import OnSignal

from . import recording_folder
from .choice import here
from .profile_capture import check_target
from .ring import Profiles, RingCapture, described, left_over, why_ranges_alone

_log = logging.getLogger(__name__)


@contextmanager
def capture(
    path: str | os.PathLike[str],
    bounds: Bounds,
    force: bool,
    on: signal.Signals | None = None,
    kernels: bool = True,
) -> Iterator[None]:
    """Keep the last part of the block, and write it as the profile ``path`` when the block ends or raises.

    ``opscope.capture`` documents what else writes it, and the exceptions.
    """
    target = Path(path)
    if session.is_reserved(f"capture into {target}"):
        yield
        return
    folder = _folder(target, force)
    if folder is None:
        yield
        return
    profiles = Profiles(target, lambda line: _log.warning("opscope: %s", line))
    ring = RingCapture(folder, bounds, profiles.add, kernels=kernels)
    ring.is_busy = profiles.is_busy
    try:
        session.start(ring)
    except OSError as error:
        recording_folder.discard(folder)
        _log.warning(
            "opscope: nothing is recorded into %s: %s", target, recording_folder.reason(error)
        )
        yield
        return
    except BaseException:  # after Ctrl-C too: clean up, then let it continue
        recording_folder.discard(folder)
        raise
    why = why_ranges_alone(here()) if kernels else None
    if why is not None:
        _log.warning("opscope: %s", why)
    handler = None if on is None else OnSignal(on, lambda: ring.recorder)
    owner = os.getpid()
    try:
        if handler is not None:
            handler.install()
        yield
        ring.ended_by = ("end", "the block ended")
    except BaseException as error:
        ring.ended_by = (EXCEPTION, described(error))
        raise
    finally:
        if os.getpid() != owner:  # a forked child leaves the block: the profile is its parent's
            session.finish()
        else:
            if handler is not None:
                handler.remove()
            _end(ring, folder, profiles, target, force)


def _folder(target: Path, force: bool) -> Path | None:
    """Return the folder of the recording; None, with the reason in the log, if the disk refuses writes."""
    check_target(target, force)
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        return recording_folder.beside(target)
    except OSError as error:
        if recording_folder.is_taken(error):
            raise
        _log.warning(
            "opscope: nothing is recorded into %s: %s", target, recording_folder.reason(error)
        )
        return None


def _end(ring: RingCapture, folder: Path, profiles: Profiles, target: Path, force: bool) -> None:
    try:
        if session.capturing() is ring:
            session.stop()
        else:  # the end of the program has stopped it
            ring.stop()
    except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
        _log.warning("opscope: the capture into %s failed at its end: %s", target, error)
    profiles.wait()
    for dump, details in left_over(folder):
        profiles.add(dump, details)
    profiles.wait()
    recording_folder.to_profile(folder, target, force)
