"""A recording on its way to a profile: its folder is deleted only once the profile stands."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
from pathlib import Path
from tempfile import mkdtemp

from opscope.readers.errors import BadInput
from opscope.readers.recording.parts import parts as parts

_log = logging.getLogger(__name__)
_OS_ERROR = re.compile(r"([^:\n]+) \(os error \d+\)")


def beside(target: Path) -> Path:
    """A new hidden folder beside ``target``, on the disk that will hold the profile. Raises OSError."""
    return Path(mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent))


def left(folder: str | os.PathLike[str]) -> str:
    """What has become of the recording in ``folder``, and how it is opened."""
    if parts(folder):
        return f"what was recorded is kept: opscope report {shlex.quote(os.fspath(folder))}"
    where = "its folder is empty" if os.path.isdir(folder) else "its folder is gone"
    return f"what was recorded is lost: {where}"


def reason(error: BaseException) -> str:
    """Why, in a few words: Polars wraps what the system says of a disk."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    said = _OS_ERROR.search(str(error))
    if said is not None:
        return said[1].strip()
    what = str(error).partition("\n")[0]
    return what if isinstance(error, BadInput) else f"{type(error).__name__}: {what}"


def is_taken(error: OSError) -> bool:
    """Whether it says that a profile may not be replaced (``check_target``), which its caller is to know
    before anything runs; else it is the disk's."""
    return isinstance(error, FileExistsError) and error.errno is None


def discard(folder: str | os.PathLike[str]) -> None:
    """Delete the folder; what cannot be deleted stays."""
    shutil.rmtree(folder, ignore_errors=True)


def to_profile(folder: str | os.PathLike[str], target: Path, force: bool) -> Path | None:
    """The recording in ``folder`` as the profile ``target``, or a numbered name where that is taken.

    Then ``folder`` is gone. Where it cannot be read or written, a line in the log says so, ``folder``
    stays, and None comes back: for a program that is not to be harmed.
    """
    # lazy: they load Polars, and a program is recorded without it
    from opscope.readers.profile import profile_folder
    from opscope.readers.recording.reader import collect

    try:
        trace = collect(folder)
        written: Path = profile_folder.write(
            target, trace, force=force, others=profile_folder.numbered(target), scratch=folder
        )
    except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
        _log.warning("opscope: %s is not written: %s; %s", target, reason(error), left(folder))
        if not parts(folder):
            discard(folder)
        return None
    except BaseException:  # Ctrl-C above all
        _log.warning("opscope: %s is not written: interrupted; %s", target, left(folder))
        raise
    if written != target:
        _log.warning("opscope: %s exists by now: wrote %s", target, written)
    discard(folder)
    return written
