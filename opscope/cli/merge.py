"""``opscope merge``: make the profile of a whole job of the partials of its ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from . import common


def merge(
    parts: Annotated[
        list[str],
        typer.Argument(
            metavar="PARTS",
            help="Folder (path or URL) of partials, or the partials themselves.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="JOB.opscope",
            help="Where the profile goes (path or URL).",
            show_default=False,
        ),
    ],
    expected: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            min=1,
            show_default=False,
            help="How many ranks the job has, if its traces do not say.",
        ),
    ] = None,
    strict: common.Strict = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing profile.")] = False,
) -> None:
    """Merge the partials of a job's ranks into one profile, which opscope report, diff and load open.

    Its tables equal those of opscope report of all the files. Ranks that are missing or could not be read are
    named; --strict makes what could not be read an error.
    """  # fmt: skip
    from opscope.scale.merge import merge as merged

    profile = merged(parts[0] if len(parts) == 1 else parts, expected=expected, strict=strict)
    try:
        profile.save(output, force=force)
    except FileExistsError as error:
        common.fail(f"{error}; --force replaces it")
    except OSError as error:
        common.fail(f"{output}: {error.strerror or error}")
    which = profile.manifest
    for one in which["failed"]:
        common.say(f"left out: {one['path']}: {one['what']}")
    read = f"{which['read']:,} of {which['expected']:,} {which['of']}"
    common.say(f"wrote {output}: {read}")
