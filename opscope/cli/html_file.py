"""``--html`` and ``--to html``: write the viewer's pages with their data into one file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import common, declared, outputs

if TYPE_CHECKING:
    from opscope.profile import Profile

Html = Annotated[
    str | None,
    declared.Option(
        "--html",
        metavar="FILE",
        help="Write the pages of opscope view into one HTML file, at a path or URL; it opens from disk"
        " and can be sent.",
        show_default=False,
    ),
]
EmbedSource = Annotated[
    bool,
    declared.Option(
        "--embed-source",
        "--embed_source",
        help="With HTML: put the text of the source files that opscope view shows into it, without what looks"
        " like secrets; else none is.",
    ),
]
SourceRoot = Annotated[
    Path | None,
    declared.Option(
        "--source-root",
        "--source_root",
        help="Folder whose .py files may be shown beside their times.  [recorded files that have not"
        " changed]",
        metavar="DIR",
        show_default=False,
    ),
]


def existing_folder(source_root: Path | None) -> Path | None:
    """Return the folder, its links followed; ends the command if it is not there."""
    if source_root is None:
        return None
    if not source_root.is_dir():
        common.fail(f"--source-root {source_root}: there is no such folder")
    return source_root.resolve()


def embedded_folder(embed_source: bool, source_root: Path | None) -> Path | None:
    """Return the folder whose source text a file may contain; ends the command if none was requested."""
    if source_root is not None and not embed_source:
        common.fail("--source-root needs --embed-source: without it a file holds no source")
    return existing_folder(source_root)


@contextlib.contextmanager
def placed(target: str, force: bool) -> Iterator[outputs.Place]:
    """Yield where to write the file, for the block that reads the profile and writes it.

    Ends the command before that if the file cannot be written.
    """
    with outputs.file(target, force) as output:
        _check(output.path, force)
        yield output


def _check(target: Path, force: bool) -> None:
    from opscope.viewer.bundle import NotBuilt, static_files

    if target.is_dir():
        common.fail(f"{target} is a folder")
    common.refuse_device(target)
    if target.exists() and not force:
        common.fail(f"{target} exists; --force replaces it")
    if not target.parent.is_dir():
        common.fail(f"{target}: there is no folder {target.parent}")
    try:
        static_files()
    except NotBuilt as error:
        common.fail(str(error))


def write(
    target: outputs.Place,
    profile: Profile,
    files: list[str],
    other: Profile | None = None,
    other_files: tuple[str, ...] = (),
    sources: bool = False,
    source_root: Path | None = None,
) -> None:
    """Write the file and print its name, and which tables have only their first rows. ``sources``: include
    the text of source files, if ``source_root`` is given only of those below it."""
    from opscope.viewer import single
    from opscope.viewer.viewed import Viewed

    names = _names(files), _names(other_files)
    viewed = Viewed(profile, names[0], other, names[1], source_root=source_root)
    try:
        left_out = single.write(viewed, target.path, sources=sources)
    except OSError as error:
        common.fail(f"{target.named()} was not written: {error.strerror or error}")
    target.say(f"wrote {target.named()}: {target.path.stat().st_size / 1e6:,.1f} MB")
    for file, counts in viewed.secrets.items():
        kinds = ", ".join(f"{kind} ({number})" for kind, number in sorted(counts.items()))
        target.say(f"hid what looks like secrets in the text of {file}: {kinds}")
    if left_out:
        most = ", ".join(f"{name} ({rows:,})" for name, rows in left_out.items())
        target.say(
            f"to stay small it lacks the last rows of {most}, and says so in each table;"
            " opscope view shows all"
        )


def _names(files: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    # the file's receiver must not learn its folder
    return tuple(map(common.base_name, files))
