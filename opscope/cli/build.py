"""``opscope build``: what is compiled for this machine on first use, compiled ahead."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from . import common


def build(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="What to build: torch or tensorflow.")
    ],
) -> None:
    """Compile the native parts of a framework's adapter ahead of its first capture.

    For images and machines that have no compiler later: the binary lies in the cache
    (OPSCOPE_CACHE, else XDG_CACHE_HOME/opscope, else ~/.cache/opscope).
    """
    if what not in _BUILDS:
        common.fail(f"nothing to build for {what!r}; there are: {', '.join(_BUILDS)}")
    if importlib.util.find_spec(what) is None:
        common.fail(f"{what} is not installed")
    try:
        for path in _BUILDS[what]():
            typer.echo(str(path))
    except RuntimeError as error:  # the adapters' BuildErrors
        common.fail(str(error))


def _torch() -> Iterator[Path]:
    from opscope.adapters.torch.native.binary import GROUPS, MEMORY, SOURCE, plan
    from opscope.adapters.torch.native.binary import build as make

    distributed = importlib.import_module("torch").distributed.is_available()
    for source in (SOURCE, MEMORY, *([GROUPS] if distributed else [])):
        yield make(plan(source))


def _tensorflow() -> Iterator[Path]:
    from opscope.adapters.tensorflow import running

    yield running.ears_library()
    yield running.inputs_library(importlib.import_module("tensorflow"))


_BUILDS: Final = {"torch": _torch, "tensorflow": _tensorflow}
