"""``opscope view``: look at a profile in a browser."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from . import common, html_file, options, progress_bar

if TYPE_CHECKING:
    from opscope.profile import Profile

Compare = Annotated[
    str | None,
    typer.Option(
        "--compare",
        help="Another run to compare with; its difference has a page.",
        metavar="OTHER",
        show_default=False,
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=1, max=65_535, help="Port to listen at.  [a free one]", show_default=False
    ),
]
Host = Annotated[
    str, typer.Option("--host", help="127.0.0.1, localhost or ::1; others are refused.")
]
NoBrowser = Annotated[
    bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
]
Editor = Annotated[
    str | None,
    typer.Option(
        "--editor",
        help="Command with which a page may open a source line, such as 'code --goto {file}:{line}'.",
        metavar="CMD",
        show_default=False,
    ),
]


@options.spread
def view(
    file: options.Files,
    compare: Compare = None,
    port: Port = None,
    host: Host = "127.0.0.1",
    no_browser: NoBrowser = False,
    source_root: html_file.SourceRoot = None,
    editor: Editor = None,
    counters: options.CountersFile = None,
    *,
    where: options.Where,
    reading: options.Reading,
) -> None:
    """Show a profile as pages in a browser, from a server that only this machine can reach.

    The address that is printed holds a secret: who has it, and an account on this machine, sees the profile.
    Ctrl-C ends the server.
    """
    from opscope.viewer import serve
    from opscope.viewer.bundle import NotBuilt, static_files
    from opscope.viewer.viewed import Viewed

    if host not in serve.LOOPBACK:
        common.fail(
            f"--host {host} is refused: the pages are for this machine alone (127.0.0.1, localhost or ::1);"
            " to see them from another one: ssh -L PORT:127.0.0.1:PORT HOST"
        )
    shown_below = html_file.existing_folder(source_root)
    if editor is not None:
        _check_editor(editor)
    try:  # before what may take long
        static_files()
        listening = serve.listen(host, port or 0)
    except (NotBuilt, serve.Taken) as error:
        common.fail(str(error))
    with listening:
        with progress_bar.bar():
            profile = where.select(reading.load(file, counters=counters))
            other = None if compare is None else _other(compare, where, reading)
        viewed = Viewed(
            profile,
            tuple(map(common.base_name, file)),
            other,
            () if compare is None else (common.base_name(compare),),
            shown_below,
            editor,
        )
        serve.serve(viewed, listening, common.say, browse=not no_browser)
    if any(thread.name == "opscope-answer" for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(0)  # an answer that nobody waits for any more is still being made


def _other(compare: str, where: options.Where, reading: options.Reading) -> Profile:
    """Return the run to compare with: the key node and the model are those of the first run alone."""
    profile = replace(reading, model=None).load([compare])
    return replace(where, key=None).select(profile)


def _check_editor(editor: str) -> None:
    """End the command if the editor's command cannot be run."""
    try:
        words = shlex.split(editor)
    except ValueError as error:
        common.fail(f"--editor {editor!r} is no command: {error}")
    if not words or shutil.which(words[0]) is None:
        common.fail(f"--editor: there is no program {words[0] if words else ''!r}")
