"""Find the questions: every file in ``questions`` is one. Runs under HTA's interpreter too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "questions"


def questions(names=None):
    """Return the modules by name, in order; all, or those named."""
    known = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
    for name in names or ():
        if name not in known:
            sys.exit(f"no question {name!r}; there are: {', '.join(known)}")
    made = {}
    for name in known if names is None else names:
        spec = importlib.util.spec_from_file_location(f"question_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made[name] = module
    return made
