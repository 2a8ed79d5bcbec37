"""``opscope view``: look at a profile in a browser."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import common, declared, html_file, options, progress_bar

if TYPE_CHECKING:
    from opscope.profile import Profile

Compare = Annotated[
    str | None,
    declared.Option(
        "--compare",
        help="Another run to compare with; its difference has a page.",
        metavar="OTHER",
        show_default=False,
    ),
]
Port = Annotated[
    int | None,
    declared.Option(
        "--port", min=1, max=65_535, help="Port to listen at.  [a free one]", show_default=False
    ),
]
Host = Annotated[
    str, declared.Option("--host", help="127.0.0.1, localhost or ::1; others are refused.")
]
NoBrowser = Annotated[
    bool, declared.Option("--no-browser", help="Print the address, and open no browser.")
]
Editor = Annotated[
    str | None,
    declared.Option(
        "--editor",
        help="Command with which a page may open a source line, such as 'code --goto {file}:{line}'.",
        metavar="CMD",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to show, and where."""

    file: options.Files
    compare: Compare = None
    port: Port = None
    host: Host = "127.0.0.1"
    no_browser: NoBrowser = False
    source_root: html_file.SourceRoot = None
    editor: Editor = None
    counters: options.CountersFile = None
    where: options.Where
    reading: options.Reading


@options.spread
def view(asked: Asked) -> None:
    """Show a profile as pages in a browser, from a server that only this machine can reach.

    The address that is printed holds a secret: who has it, and an account on this machine, sees the profile.
    Ctrl-C ends the server.
    """
    _show(asked)


@options.spread
def dlprofviewer(asked: Asked) -> None:
    """Show a profile, such as a database of DLProf, at port 8000: `opscope view` for users of DLProf.

    Only this machine can reach it; from another one: ssh -L 8000:127.0.0.1:8000 HOST
    """
    _show(replace(asked, port=asked.port or 8000))


def _show(asked: Asked) -> None:
    from opscope.readers.errors import SeveralRuns
    from opscope.readers.xplane import found
    from opscope.viewer import serve
    from opscope.viewer.bundle import NotBuilt, static_files
    from opscope.viewer.runs import Runs, by_age
    from opscope.viewer.viewed import Viewed

    compare, where, reading = asked.compare, asked.where, asked.reading

    if asked.host not in serve.LOOPBACK:
        common.fail(
            f"--host {asked.host} is refused: the pages are for this machine alone (127.0.0.1, localhost or"
            " ::1); to see them from another one: ssh -L PORT:127.0.0.1:PORT HOST"
        )
    shown_below = html_file.existing_folder(asked.source_root)
    if asked.editor is not None:
        _check_editor(asked.editor)
    try:  # before slow work
        static_files()
        listening = serve.listen(asked.host, asked.port or 0)
    except (NotBuilt, serve.Taken) as error:
        common.fail(str(error))
    with listening:

        def view_of(paths: list[str], of_runs: bool = False) -> Viewed:
            with progress_bar.bar():
                profile = where.select(reading.load(paths, counters=asked.counters))
                other = None if compare is None else _other(compare, where, reading)
            return Viewed(
                profile,
                tuple(map(common.base_name, paths)),
                other,
                () if compare is None else (common.base_name(compare),),
                shown_below,
                asked.editor,
                of_runs,
            )

        def list_of(folder: str, runs: Sequence[Path]) -> Runs:
            name = common.base_name(folder)
            common.say(f"{len(runs)} runs are in {name}: the first page lists them")
            paths = tuple(path for path, _ in by_age(runs))
            return Runs(name, paths, lambda run: view_of([str(run)], of_runs=True))

        shown: Viewed | Runs
        inside = found.runs(Path(asked.file[0])) if len(asked.file) == 1 else []
        try:
            several = len(inside) > 1
            shown = list_of(asked.file[0], inside) if several else view_of(asked.file)
        except SeveralRuns as error:
            shown = list_of(str(error.path), error.runs)
        serve.serve(shown, listening, common.say, browse=not asked.no_browser)
    if any(thread.name == "opscope-answer" for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(0)  # an abandoned answer is still in progress


def _other(compare: str, where: options.Where, reading: options.Reading) -> Profile:
    """Return the run to compare with. The key node and the model apply to the first run only."""
    other = replace(reading, model=None, model_config=None, requests=None, power=None)
    profile = other.load([compare])
    return replace(where, key=None).select(profile)


def _check_editor(editor: str) -> None:
    """End the command if the editor's command cannot be run."""
    try:
        words = shlex.split(editor)
    except ValueError as error:
        common.fail(f"--editor {editor!r} is no command: {error}")
    if not words or shutil.which(words[0]) is None:
        common.fail(f"--editor: there is no program {words[0] if words else ''!r}")
