"""``opscope mcp``: serve answers to agents over standard input and output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from . import common

Roots = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH",
        help="Files and folders that may be opened; else the current folder.",
        show_default=False,
        exists=True,
    ),
]
SourceRoot = Annotated[
    Path | None,
    typer.Option(
        "--source-root",
        metavar="DIR",
        help="Folder whose .py files may be shown, where a trace names them.",
        show_default=False,
        exists=True,
        file_okay=False,
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(help="Name of the GPU (or CPU), if a trace does not name it.", show_default=False),
]


def mcp(path: Roots = None, source_root: SourceRoot = None, gpu: Gpu = None) -> None:
    """Serve answers to agents by the Model Context Protocol.

    Nothing is written, no program is run, no network is used, and only what lies in PATH is opened. Needs the
    extra: pip install 'opscope[mcp]'. Without it: opscope ask FILE diagnose --json.
    """
    from opscope.agents.runs import Reading, Runs
    from opscope.readers.profile.kept import KEEP

    try:
        from opscope.agents.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "anyio"):
            raise
        common.fail("the MCP server needs the extra: pip install 'opscope[mcp]'")
    os.environ[KEEP] = "0"  # read-only: no result is kept in a profile's folder
    os.environ["PATH"] = ""  # readers of other tools' files find no program that they could run
    os.environ.pop("OPSCOPE_NCU", None)
    serve(Runs(tuple(path or [Path()]), source_root, Reading(gpu=gpu)))
