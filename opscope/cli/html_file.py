"""``--html`` and ``--to html``: write the viewer's pages with their data into one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import common

if TYPE_CHECKING:
    from opscope.profile import Profile

Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write the pages of opscope view into one HTML file, which opens from disk and can be sent.",
        show_default=False,
    ),
]
EmbedSource = Annotated[
    bool,
    typer.Option(
        "--embed-source",
        "--embed_source",
        help="With HTML: put the text of the source files that opscope view shows into it; else none is.",
    ),
]


def check(target: Path, force: bool) -> None:
    """End the command if the file cannot be written; call it before anything is read."""
    from opscope.viewer.bundle import NotBuilt, static_files

    if target.is_dir():
        common.fail(f"{target} is a folder")
    if target.exists() and not force:
        common.fail(f"{target} exists; --force replaces it")
    if not target.parent.is_dir():
        common.fail(f"{target}: there is no folder {target.parent}")
    try:
        static_files()
    except NotBuilt as error:
        common.fail(str(error))


def write(
    target: Path,
    profile: Profile,
    files: list[str],
    other: Profile | None = None,
    other_files: tuple[str, ...] = (),
    sources: bool = False,
) -> None:
    """Write the file and say so, with the tables of which it has only the first rows."""
    from opscope.viewer import single
    from opscope.viewer.viewed import Viewed

    viewed = Viewed(profile, _names(files), other, _names(other_files))
    try:
        left_out = single.write(viewed, target, sources=sources)
    except OSError as error:
        common.fail(f"{target} was not written: {error.strerror or error}")
    common.say(f"wrote {target}: {target.stat().st_size / 1e6:,.1f} MB")
    if left_out:
        most = ", ".join(f"{name} ({rows:,})" for name, rows in left_out.items())
        common.say(
            f"to stay small it lacks the last rows of {most}, and says so in each table;"
            " opscope view shows all"
        )


def _names(files: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    # where the files lie is nobody's business who gets the file
    return tuple(os.path.basename(os.path.normpath(name)) for name in files)
