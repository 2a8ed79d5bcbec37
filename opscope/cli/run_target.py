"""Where ``opscope run`` writes the profile of a command, and how the command is started."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from . import common, launch
from .collected import names_for

_SUFFIX = ".opscope"


def runnable(command: list[str]) -> list[str]:
    """Return the command; this Python runs a Python file that cannot be executed directly."""
    script = Path(command[0])
    if script.suffix == ".py" and script.is_file() and shutil.which(command[0]) is None:
        return [sys.executable, *command]
    return command


def target_of(output: Path | None, command: list[str], force: bool) -> Path:
    """Return the profile's path; ends the command, before the program runs, if it cannot be written."""
    common.refuse_url(output, "--output")
    if output is None:
        base = launch.name_of(command)
        target, number = Path(base + _SUFFIX), 1
        while target.exists() and not force:
            number += 1
            target = Path(f"{base}-{number}{_SUFFIX}")
    else:
        common.refuse_name(output)
        target = output if output.suffix == _SUFFIX else output.with_name(output.name + _SUFFIX)
    if target.exists() and not force:
        common.fail(f"{target} exists; --force replaces it")
    if target.exists() and not (target / "meta.json").is_file():
        common.fail(f"{target} is not a profile, so --force does not replace it")
    if not target.parent.is_dir():
        common.fail(f"{target.parent}: no such folder")
    if not os.access(target.parent, os.W_OK):
        common.fail(f"{target.parent}: cannot write to this folder; --output names another")
    return target


def other_names(output: Path | None, command: list[str], target: Path) -> Iterator[Path]:
    """Yield other names for the profile, in case another run takes its name meanwhile."""
    base = target if output is not None else Path(launch.name_of(command) + _SUFFIX)
    return names_for(base)
