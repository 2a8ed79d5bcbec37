"""Make a Python process of ``opscope run --attachable`` one that ``opscope attach`` reaches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: Variables: the folder to record into after an attach, and whether nothing is recorded before.
PLACE, ALONE = "OPSCOPE_RUN_ATTACH", "OPSCOPE_RUN_ATTACH_ALONE"


def settings(attachable: bool, folder: Path, alone: bool) -> dict[str, str]:
    """Return the option as environment variables."""
    return {
        PLACE: os.fspath(folder) if attachable else "",
        ALONE: "1" if attachable and alone else "",
    }


def alone(env: Mapping[str, str]) -> bool:
    """Whether the process records nothing before somebody attaches."""
    return bool(env.get(ALONE))


def start(env: Mapping[str, str]) -> None:
    """Let others attach, if the options of the run say so."""
    folder = env.get(PLACE)
    if folder:
        from opscope.backends.attachable_program import attachable

        attachable(folder)
