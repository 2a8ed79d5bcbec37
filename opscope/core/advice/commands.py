"""Commands in advice that can be pasted: they name the program's own command line and the trace's file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

#: Placeholders in a command for the program, and for the file that a report is of.
_PROGRAM: Final = re.compile(r"-- (python train\.py|…)")
_FILE: Final = re.compile(r"\bFILE\b")


def with_command(text: str | None, command: Sequence[str] | None) -> str | None:
    """Return a text in which commands run the program by its own ``command``, if that is known."""
    if text is None or not command:
        return text
    words = shlex.join(command)
    return _PROGRAM.sub(lambda _: f"-- {words}", text)


def with_file(text: str, profile: Any) -> str:
    """Return a text in which commands name the profile's file, if that is known."""
    name = file_of(profile)
    return text if name is None else _FILE.sub(lambda _: name, text)


def named(text: str, name: str) -> str:
    """Return a text in which commands without a file name the file ``name``."""
    return _FILE.sub(lambda _: shlex.quote(name), text)


def file_of(profile: Any) -> str | None:
    """Return the files of a profile as words of a command; None where they are not known."""
    path = getattr(profile, "_path", None)
    if path is not None:
        return shlex.quote(str(path))
    origin = profile.trace.origin
    parts = origin.get("parts") or [origin]
    paths = [str(path) for part in parts for path in part.get("paths") or ()]
    return shlex.join(dict.fromkeys(paths)) if 0 < len(paths) <= 2 else None
