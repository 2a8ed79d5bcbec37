"""Find what packages register in an entry-point group, reading every package's metadata only once.

Importing ``importlib.metadata`` takes 7 ms, and reading a hundred packages another 7 ms, in each Python that
``opscope run`` starts. So the run passes its findings to its children in ``OPSCOPE_RUN_REGISTERED``. A child
that may find other packages (another Python, another ``PYTHONPATH``) reads the metadata itself.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

#: The run's findings, as ``handed_down`` writes them.
VARIABLE: Final = "OPSCOPE_RUN_REGISTERED"
_PROJECT: Final = Path(__file__).resolve().parents[2] / "pyproject.toml"


def entries(group: str) -> dict[str, str]:
    """Return the entry points of ``group``, name → import string (``module:object``), without loading any.
    Other packages cannot take opscope's own names."""
    handed_groups = _handed(os.environ.get(VARIABLE, ""), _python(os.environ)).get(group)
    if handed_groups is not None:
        return dict(handed_groups)
    import importlib.metadata  # lazy: a child of a run seldom needs it

    targets: dict[str, str] = {}
    for point in importlib.metadata.entry_points(group=group):
        if not targets.get(point.name, "").startswith("opscope."):
            targets[point.name] = point.value
    return targets


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of ``group``. The metadata of all packages is read once per ``sys.path``."""
    points: EntryPoints = _all_entry_points(tuple(sys.path)).select(group=group)
    return points


@functools.lru_cache(maxsize=1)
def _all_entry_points(path: tuple[str, ...]) -> Any:
    import importlib.metadata  # lazy: the same

    return importlib.metadata.entry_points()


def of_checkout(group: str) -> dict[str, str]:
    """Return opscope's own entry points from ``pyproject.toml``, in the same form.

    opscope may run from its source tree without being installed; then no metadata names them.
    """
    if not _PROJECT.is_file():
        return {}
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project: Any = toml.loads(_PROJECT.read_text(encoding="utf-8"))
    points: dict[str, str] = project["project"]["entry-points"][group]
    return points


def handed_down(groups: Mapping[str, Mapping[str, str]], environ: Mapping[str, str]) -> str:
    """Return the variable's value for children with ``environ``; ``groups`` is group → its entry points."""
    return json.dumps({"python": _python(environ), "groups": groups})


def _python(environ: Mapping[str, str]) -> list[str]:
    """Return the facts that decide which packages a Python finds when it starts."""
    return [sys.prefix, sys.version, environ.get("PYTHONPATH", "")]


@functools.lru_cache(maxsize=1)
def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _handed(text: str, python: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the entry points by group in the variable's ``text``; none if they belong to another Python."""
    if not text:
        return {}
    handed = _parse(text)
    if not isinstance(handed, dict) or handed.get("python") != [*python]:
        return {}
    groups = handed.get("groups")
    return groups if isinstance(groups, dict) else {}
