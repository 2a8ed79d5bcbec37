"""A double of ``opscope.reports.dlprof``, which writes what it was asked for in the place of the reports."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "opscope.reports.dlprof"
#: DLProf's names of the files of three reports.
_FILES = {"detail": "detailed", "tensor": "tensor_core", "group_node": "group_op"}


class ReportError(ValueError):
    """As the real one's: the reports cannot be made or written as asked."""


def write(
    profile: Any,
    names: Iterable[str],
    folder: Path,
    *,
    base_name: str = "dlprof",
    formats: Sequence[str] = ("csv",),
    domains: Sequence[str] | None = None,
    key: str | None = None,
    iter_start: int | None = None,
    iter_stop: int | None = None,
    force: bool = False,
    profile_name: str | None = None,
    shapes: bool = True,
) -> list[Path]:
    """Write a file for each report, domain and format, with the arguments and the kernels' number."""
    if key == "NO_SUCH_OP":
        raise ReportError(f"no op named {key!r}")
    paths = [
        folder
        / f"{base_name}_{_FILES.get(name, name)}{'' if domain is None else f'_{domain}'}.{kind}"
        for name in names
        for domain in domains or (None,)
        for kind in formats
    ]
    for path in paths:
        if path.exists() and not force:
            raise ReportError(f"{path} exists")
    told = {"key": key, "start": iter_start, "stop": iter_stop}
    for path in paths:
        path.write_text(json.dumps({**told, "kernels": len(profile.trace["kernels"])}))
    return paths


def install() -> None:
    """Stand in for the real module in this process."""
    made = ModuleType(NAME)
    made.write, made.ReportError = write, ReportError  # type: ignore[attr-defined]
    put(made)


def put(module: ModuleType | None) -> None:
    """Let imports of the reports find ``module``; None: as if nothing had imported them yet."""
    package, name = NAME.rsplit(".", 1)
    parent = importlib.import_module(package)
    if module is None:
        sys.modules.pop(NAME, None)
        vars(parent).pop(name, None)
    else:
        sys.modules[NAME] = module
        setattr(parent, name, module)
