"""``opscope build``: what is compiled for this machine on first use, compiled ahead."""

from __future__ import annotations

from typing import Annotated

import typer

from . import common


def build(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="What to build: torch.")],
) -> None:
    """Compile the native observer of a framework ahead of its first capture.

    For images and machines that have no compiler later: the binary lies in the cache
    (OPSCOPE_CACHE, else XDG_CACHE_HOME/opscope, else ~/.cache/opscope).
    """
    if what != "torch":
        common.fail(f"nothing to build for {what!r}; there is: torch")
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        common.fail("PyTorch is not installed")
    from opscope.adapters.torch.native.binary import BuildError, plan
    from opscope.adapters.torch.native.binary import build as make

    try:
        path = make(plan())
    except BuildError as error:
        common.fail(str(error))
    typer.echo(str(path))
