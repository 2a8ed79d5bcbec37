"""Turn a recording into a profile; the recording's folder is deleted only after the profile is written."""

from __future__ import annotations

# loaded now, because a profile may be written while Python ends, when nothing can be imported any more
import concurrent.futures.thread  # noqa: F401
import logging
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from tempfile import mkdtemp

from opscope.core.refusals import refusal, refuse_size
from opscope.readers.errors import BadInput
from opscope.readers.recording.parts import parts as parts

_log = logging.getLogger(__name__)
#: Upper bound of a profile file's bytes besides its rows.
_ROOM = 1 << 16
_OS_ERROR = re.compile(r"([^:\n]+) \(os error (\d+)\)")


def beside(target: Path) -> Path:
    """Make a hidden folder beside ``target``, on the disk of the profile. Raises OSError."""
    return Path(mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent))


def left(folder: str | os.PathLike[str]) -> str:
    """Return a text that says whether the recording in ``folder`` is kept, and how to open it."""
    try:
        is_kept = bool(parts(folder))
    except OSError as error:  # no descriptor is free
        return f"what was recorded is in {shlex.quote(os.fspath(folder))} ({refusal(error)})"
    if is_kept:
        return f"what was recorded is kept: opscope report {shlex.quote(os.fspath(folder))}"
    where = "its folder is empty" if os.path.isdir(folder) else "its folder is gone"
    return f"what was recorded is lost: {where}"


def reason(error: BaseException) -> str:
    """Return the reason of an error in a few words; Polars wraps the system's messages about a disk."""
    if isinstance(error, OSError) and error.strerror:
        return refusal(error)
    wrapped = _OS_ERROR.search(str(error))
    if wrapped is not None:
        return refusal(OSError(int(wrapped[2]), wrapped[1].strip()))
    message = str(error).partition("\n")[0]
    return message if isinstance(error, BadInput) else f"{type(error).__name__}: {message}"


def is_taken(error: OSError) -> bool:
    """Whether the error says that a profile must not be replaced (``check_target``); otherwise it is a disk
    error.

    The caller must know before anything runs.
    """
    return isinstance(error, FileExistsError) and error.errno is None


def discard(folder: str | os.PathLike[str]) -> None:
    """Delete the folder; files that cannot be deleted stay."""
    shutil.rmtree(folder, ignore_errors=True)


def to_profile(folder: str | os.PathLike[str], target: Path, force: bool) -> Path | None:
    """Write the recording in ``folder`` as the profile ``target``, or under a numbered name if that is taken.

    Return the path written, and delete ``folder``. If reading or writing fails, log a warning, keep
    ``folder`` and return None: the user's program must not be harmed.
    """
    # lazy: these imports load Polars, which recording a program does not need
    from opscope.readers.profile import profile_writing
    from opscope.readers.recording.reader import collect

    try:
        if hasattr(signal, "SIGXFSZ") and signal.getsignal(signal.SIGXFSZ) != signal.SIG_IGN:
            # the files of a profile are not larger than the whole recording
            refuse_size(_ROOM + sum(path.stat().st_size for path in Path(folder).rglob("*")))
        trace = collect(folder)
        written: Path = profile_writing.write(
            target, trace, force=force, others=profile_writing.numbered(target), scratch=folder
        )
    except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
        _log.warning("opscope: %s is not written: %s; %s", target, reason(error), left(folder))
        if not parts(folder):
            discard(folder)
        return None
    except BaseException:  # above all Ctrl-C
        _log.warning("opscope: %s is not written: interrupted; %s", target, left(folder))
        raise
    if written != target:
        _log.warning("opscope: %s exists by now, so the profile is %s", target, written)
    discard(folder)
    return written
