"""``opscope build``: compile ahead what opscope otherwise compiles for this machine on first use."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from opscope.adapters import known
from opscope.adapters.shared.ready import sources

from . import common


def build(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="What to build: torch or tensorflow.")
    ],
) -> None:
    """Compile the native parts of a framework's adapter ahead of its first capture.

    Use it for container images, and for machines that will have no compiler later. The binary is written
    to the cache (OPSCOPE_CACHE, else XDG_CACHE_HOME/opscope, else ~/.cache/opscope).
    """
    targets = known.available()
    native = [name for name in targets if sources(name)]
    if what not in native:
        common.fail(f"nothing to build for {what!r}; choose one of: {', '.join(sorted(native))}")
    if importlib.util.find_spec(what) is None:
        common.fail(f"{what} is not installed in this Python environment")
    importlib.import_module(what)
    try:
        for path in known.load(targets[what]).build():
            typer.echo(str(path))
    except RuntimeError as error:  # the adapters' BuildErrors
        common.fail(str(error))
